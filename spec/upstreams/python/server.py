"""A server made with the official Python SDK, 1.x or 2.x:  python server.py stdio, or sse or streamable-http, at the port of the variable PORT."""
import os
import sys

try:
    from mcp.server.mcpserver import Context, MCPServer
    server, options = MCPServer("python"), {"port": int(os.environ.get("PORT", 0))}
except ImportError:
    from mcp.server.fastmcp import Context, FastMCP
    server, options = FastMCP("python", port=int(os.environ.get("PORT", 0))), {}

count = 0


@server.tool()
def echo(text: str = "") -> str:
    """Echoes."""
    return text


@server.tool()
def counter(n: int = 0) -> str:
    """Counts."""
    global count
    count += 1
    return str(count)


@server.tool()
async def steps(context: Context, n: int = 0) -> str:
    """Reports progress."""
    for step in (1, 2, 3):
        await context.report_progress(step, 3)
    return "done"


@server.prompt()
def hello(who: str) -> str:
    return f"Hello, {who}"


@server.resource("fixture://text")
def text() -> str:
    return "hello"


kind = sys.argv[1]
server.run(kind, **(options if kind != "stdio" else {}))
