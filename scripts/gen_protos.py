"""Generate ``wire/v1`` from ``protos/``: ``python scripts/gen_protos.py DIRECTORY``.

The path of a proto file is the import path of its module, so the generated code needs no rewriting.
"""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

PROTOS = Path(__file__).resolve().parent.parent / "protos"


def generate(into: Path) -> int:
    """Write the modules of every proto file below ``into``; return protoc's exit status."""
    sources = sorted(path.relative_to(PROTOS).as_posix() for path in PROTOS.rglob("*.proto"))
    well_known = files("grpc_tools") / "_proto"
    status: int = protoc.main(
        [
            "protoc",
            f"-I{PROTOS}",
            f"-I{well_known}",
            f"--python_out={into}",
            f"--pyi_out={into}",
            f"--grpc_python_out={into}",
            *sources,
        ]
    )
    return status


if __name__ == "__main__":
    sys.exit(generate(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
