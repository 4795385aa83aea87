"""``python -m agents``: the node agent."""

from agents.main import main

main()
