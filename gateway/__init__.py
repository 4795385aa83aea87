"""The server that node agents report to: it checks who speaks, and hands what they say to Temporal."""
