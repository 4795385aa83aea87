"""The ``kintsugi`` command and its sub-commands. What one needs is imported when it runs: ``--help`` is quick."""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence

import typer

from cli import (
    answers_commands,
    demo_command,
    look_commands,
    policy_commands,
    process_commands,
    up_command,
)
from cli.errors import CommandError
from cli.launch import DEBUG_VARIABLE
from runtime import exits

app = typer.Typer(
    name="kintsugi",
    help="Repairs GPU cluster nodes: a bad GPU becomes a healthy node, and people decide what they want to decide.",
    epilog="Exit status: 0 done, 1 the answer is no (faults, refused, not valid), 2 wrong usage or could not.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
up_command.register(app)
process_commands.register(app)
look_commands.register(app)
answers_commands.register(app)
policy_commands.register(app)
demo_command.register(app)


def run_app(arguments: Sequence[str]) -> int:
    """Run the command with these arguments and return its exit status; whatever goes wrong is said in words."""
    try:
        app(list(arguments), prog_name="kintsugi")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else exits.OK if ended.code is None else exits.USAGE
    except CommandError as error:
        exits.complain(str(error))
        return error.status
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except BrokenPipeError:
        # The reader has seen enough (`kintsugi repairs | head`).
        return exits.OK
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE):
            traceback.print_exc()
        exits.complain(
            f"unexpected {type(error).__name__}: {error}\nThis is a mistake in kintsugi;"
            f" {DEBUG_VARIABLE}=1 shows where it happened."
        )
        return exits.COULD_NOT_LOOK
    return exits.OK
