"""A client made with the official Python SDK, 1.x or 2.x:  python client.py PREFIX stdio COMMAND…, or PREFIX sse or http URL.
With MODE=legacy in the environment version 2.x begins with `initialize`. CHECKS has the names of those to try, with commas between them,
SECONDS the time that each may take.

It tries what a server of spec/upstreams has, whose tools and prompts have PREFIX before their names, and prints a line for each check: `ok NAME`,
or `not NAME: WHY`. The checks are named in spec/helpers/sdks.lua."""
import os
import sys
from contextlib import AsyncExitStack

import anyio
from mcp import ClientSession, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

try:
    import mcp_types as types
    from mcp.client import Client
except ImportError:
    from mcp import types
    Client = None

prefix, kind, where = sys.argv[1], sys.argv[2], sys.argv[3:]
seconds = float(os.environ.get("SECONDS", 8))
heard = []
answer = "accept"


async def elicit(context, params):
    return types.ElicitResult(action=answer, content={"name": "you"} if answer == "accept" else None)


async def sample(context, params):
    return types.CreateMessageResult(role="assistant", content=types.TextContent(type="text", text="from " + params.messages[0].content.text
        if not isinstance(params.messages[0].content, list) else params.messages[0].content[0].text), model="m")


async def roots(context):
    return types.ListRootsResult(roots=[types.Root(uri="file:///home")])


async def log(params):
    heard.append(("log", params.data))


async def message(message):
    method = getattr(getattr(message, "root", message), "method", None)
    if method:
        heard.append((method, None))


callbacks = {
    "elicitation_callback": elicit, "sampling_callback": sample, "list_roots_callback": roots, "logging_callback": log, "message_handler": message,
}


def transport():
    if kind == "stdio":
        return stdio_client(StdioServerParameters(command=where[0], args=where[1:]))
    return sse_client(where[0]) if kind == "sse" else streamable_http_client(where[0])


async def connected(stack):
    if Client:
        return await stack.enter_async_context(Client(transport(), log_level="info", mode=os.environ.get("MODE", "auto"), **callbacks))
    streams = await stack.enter_async_context(transport())
    session = await stack.enter_async_context(ClientSession(streams[0], streams[1], **callbacks))
    await session.initialize()
    return session


def version(client):
    return client.protocol_version if Client else "2025-11-25"


async def fact(what, test):
    with anyio.move_on_after(seconds / 2) as scope:
        while not await test():
            await anyio.sleep(0.02)
    if scope.cancelled_caught:
        raise AssertionError("waited in vain for " + what)


def equal(wanted, got):
    if wanted != got:
        raise AssertionError(f"wanted {wanted!r:.80}, got {got!r:.200}")


async def call(client, name, arguments=None, **options):
    result = await client.call_tool(prefix + name, arguments or {}, **options)
    return result.content[0].text if result.content else result


def attribute(result, *names):
    for name in names:
        if hasattr(result, name):
            return getattr(result, name)


async def check_list(client):
    equal(True, prefix + "echo" in [tool.name for tool in (await client.list_tools()).tools])


async def check_call(client):
    equal("hi", await call(client, "echo", {"text": "hi"}))


async def check_structured(client):
    result = await client.call_tool(prefix + "add", {"a": 1, "b": 2})
    equal({"sum": 3}, attribute(result, "structured_content", "structuredContent"))


async def check_failure(client):
    result = await client.call_tool(prefix + "fail", {})
    equal(True, attribute(result, "is_error", "isError"))
    equal(True, "fail" in result.content[0].text or "no luck" in result.content[0].text)


async def check_unknown(client):
    try:
        result = await client.call_tool(prefix + "nothing", {})
    except Exception:
        return
    equal(True, attribute(result, "is_error", "isError"))


async def check_progress(client):
    steps = []

    async def on(progress, total, text):
        steps.append(progress)
    equal("done", await call(client, "steps", {"n": 1}, progress_callback=on))
    equal([1, 2, 3], steps)


async def check_large(client):
    steps = []

    async def on(progress, total, text):
        steps.append(progress)
    equal(2 << 20, len(await call(client, "large", {"size": 2 << 20}, progress_callback=on)))


async def check_log(client):
    equal("said", await call(client, "say", {"text": "a word"}))

    async def came():
        return ("log", "a word") in heard
    await fact("the log message", came)


async def check_elicitation(client):
    global answer
    answer = "accept"
    equal("Hello, you", await call(client, "ask"))
    answer = "decline"
    equal("decline", await call(client, "ask"))


async def check_elicitation_first(client):
    global answer
    answer = "accept"
    equal("Hello, you", await call(client, "ask_first"))


async def check_sampling(client):
    equal("from me", await call(client, "sample", {"text": "me"}))


async def check_roots(client):
    equal("file:///home", await call(client, "roots"))


async def check_ping(client):
    if version(client) < "2026-07-28":
        await client.send_ping()
    equal("pong", await call(client, "ping"))


async def check_cancellation(client):
    if Client is None:
        raise AssertionError("this SDK tells nobody that it waits no longer")
    before = int(await call(client, "cancelled"))
    try:
        await call(client, "slow", read_timeout_seconds=0.3)
    except Exception:
        pass

    async def ended():
        return int(await call(client, "cancelled")) > before
    await fact("the end of the call", ended)


async def check_resource(client):
    equal("hello", (await client.read_resource("fixture://text")).contents[0].text)
    equal("item 7", (await client.read_resource("fixture://item/7")).contents[0].text)
    templates = await client.list_resource_templates()
    equal(1, len(attribute(templates, "resource_templates", "resourceTemplates")))


async def check_prompt(client):
    equal("Hello, you", (await client.get_prompt(prefix + "hello", {"who": "you"})).messages[0].content.text)


async def check_completion(client):
    result = await client.complete(types.PromptReference(type="ref/prompt", name=prefix + "hello"), {"name": "who", "value": "wor"})
    equal(["world", "word"], list(result.completion.values))


async def check_change(client):
    async def came():
        return any("tools/list_changed" in what for what, _ in heard)

    async def listed():
        return prefix + "grown" in [tool.name for tool in (await client.list_tools()).tools]
    if version(client) >= "2026-07-28":
        async with client.listen(tools_list_changed=True) as changes:
            await call(client, "grow")
            with anyio.fail_after(seconds):
                await changes.__anext__()
            await fact("the new tool", listed)
        return
    await call(client, "grow")
    await fact("the notification", came)
    await fact("the new tool", listed)


async def main():
    checks = [(name[6:], check) for name, check in globals().items() if name.startswith("check_")]
    only = os.environ.get("CHECKS")
    checks = [(name, check) for name, check in checks if not only or name in only.split(",")]
    async with AsyncExitStack() as stack:
        client = await connected(stack)
        for name, check in checks:
            try:
                with anyio.fail_after(seconds):
                    await check(client)
                print("ok", name, flush=True)
            except Exception as error:
                while isinstance(error, BaseExceptionGroup):
                    error = error.exceptions[0]
                print(f"not {name}: {type(error).__name__}: {error}".replace("\n", " ")[:300], flush=True)
    print("ok leave", flush=True)


anyio.run(main)
