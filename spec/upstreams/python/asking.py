"""A server made with the official Python SDK, 1.x or 2.x, whose tools ask their client:  python asking.py stdio, or streamable-http, at the port of PORT."""
import os
import sys

from pydantic import BaseModel

try:
    from mcp.server.mcpserver import Context, MCPServer
    server, options = MCPServer("asking"), {"port": int(os.environ.get("PORT", 0))}
except ImportError:
    from mcp.server.fastmcp import Context, FastMCP
    server, options = FastMCP("asking", port=int(os.environ.get("PORT", 0))), {}


class Name(BaseModel):
    name: str


@server.tool()
async def elicit(context: Context) -> str:
    """Asks for a name on the stream of the call."""
    answer = await context.elicit("Who are you?", Name)
    return f"{answer.action}: {answer.data.name}" if answer.action == "accept" else answer.action


@server.tool()
async def ping(context: Context) -> str:
    """Pings the client beside the stream of the call."""
    await context.session.send_ping()
    return "answered"


@server.tool()
async def roots(context: Context) -> str:
    """Asks for the roots beside the stream of the call."""
    try:
        return f"{len((await context.session.list_roots()).roots)} roots"
    except Exception as error:
        return f"refused: {error}"


kind = sys.argv[1]
server.run(kind, **(options if kind != "stdio" else {}))
