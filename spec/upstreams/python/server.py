"""A server made with the official Python SDK, 1.x or 2.x:  python server.py stdio, or sse or streamable-http, at the port of the variable PORT.

What its tools do stands in spec/helpers/sdks.lua."""
import os
import sys
from typing import Annotated

import anyio
from pydantic import BaseModel

port = int(os.environ.get("PORT", 0))
try:
    from mcp.server.mcpserver import Context, MCPServer
    from mcp_types import Completion, SamplingMessage, TextContent
    server, options = MCPServer("python"), {"port": port}
    is_new = True
except ImportError:
    from mcp.server.fastmcp import Context, FastMCP
    from mcp.types import Completion, SamplingMessage, TextContent
    server, options = FastMCP("python", port=port), {}
    is_new = False

count = 0
ended = 0


class Sum(BaseModel):
    sum: int


class Name(BaseModel):
    name: str


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
def add(a: int, b: int) -> Sum:
    """Adds, and says the sum as structured content."""
    return Sum(sum=a + b)


@server.tool()
def fail() -> str:
    """Fails."""
    raise ValueError("no luck")


@server.tool()
async def steps(context: Context, n: int = 0) -> str:
    """Reports progress."""
    for step in (1, 2, 3):
        await context.report_progress(step, 3)
    return "done"


@server.tool()
async def large(context: Context, size: int) -> str:
    """Reports progress, and returns a text of so many bytes."""
    await context.report_progress(1, 1)
    return "x" * size


@server.tool()
async def say(context: Context, text: str) -> str:
    """Sends a log message."""
    await context.info(text)
    return "said"


@server.tool()
async def ask(context: Context) -> str:
    """Asks for a name in the middle of the call."""
    result = await context.elicit("Who are you?", Name)
    return "Hello, " + result.data.name if result.action == "accept" else result.action


@server.tool()
async def sample(context: Context, text: str) -> str:
    """Has the client's model answer."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text=text))
    result = await context.session.create_message([message], max_tokens=10)
    return result.content.text


@server.tool()
async def roots(context: Context) -> str:
    """Says the client's roots."""
    result = await context.session.list_roots()
    return " ".join(str(root.uri) for root in result.roots)


@server.tool()
async def ping(context: Context) -> str:
    """Pings the client."""
    await context.session.send_ping()
    return "pong"


@server.tool()
async def slow() -> str:
    """Waits until it is cancelled."""
    global ended
    try:
        await anyio.sleep(20)
    finally:
        ended += 1
    return "late"


@server.tool()
def cancelled() -> str:
    """Says how many slow calls have ended."""
    return str(ended)


def grown() -> str:
    return "grown"


@server.tool()
async def grow(context: Context) -> str:
    """Adds a tool, and says so."""
    server.add_tool(grown)
    if is_new:
        await context.notify_tools_changed()
    await context.session.send_tool_list_changed()
    return "grown"


@server.prompt()
def hello(who: str) -> str:
    return f"Hello, {who}"


@server.resource("fixture://text")
def text() -> str:
    return "hello"


@server.resource("fixture://item/{id}")
def item(id: str) -> str:
    return "item " + id


@server.completion()
async def complete(ref, argument, context):
    return Completion(values=[word for word in ("world", "word") if word.startswith(argument.value)])


if is_new:
    from mcp.server.mcpserver import Elicit, Resolve

    async def who() -> Elicit[Name]:
        return Elicit("Who are you?", Name)

    @server.tool()
    def ask_first(name: Annotated[Name, Resolve(who)]) -> str:
        """Asks for a name before the call, as the SDK has it for both eras."""
        return "Hello, " + name.name


kind = sys.argv[1]
server.run(kind, **(options if kind != "stdio" else {}))
