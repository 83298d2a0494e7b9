"""A client made with the official Python SDK, 1.x or 2.x, that signs in at a gateway:  python sign_in.py URL PERSON…
PERSON is a program that gets the address of the sign-in as its last argument, and prints the one that it is sent back to.
It calls the tool `who`, again with an access token that is over, and once more in a connection with what it has kept."""
import json
import subprocess
import sys
from urllib.parse import parse_qs, urlparse

import anyio
from mcp import ClientSession
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata

try:
    import httpx2 as httpx
    from mcp.shared.auth import AuthorizationCodeResult
except ImportError:
    import httpx
    AuthorizationCodeResult = None

url, person = sys.argv[1], sys.argv[2:]


def tell(fact, **more):
    print(json.dumps({"fact": fact, **more}), flush=True)


class Kept:
    tokens = client = None
    times = 0

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens, self.times = tokens, self.times + 1

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


kept, back = Kept(), []


async def open_browser(to):
    done = await anyio.run_process([*person, to], stderr=None)
    back.append(json.loads(done.stdout)["back"])


async def come_back():
    found = {name: values[0] for name, values in parse_qs(urlparse(back[-1]).query).items()}
    return AuthorizationCodeResult(**found) if AuthorizationCodeResult else (found["code"], found.get("state"))


def provider():
    return OAuthClientProvider(url, OAuthClientMetadata(client_name="A client of the specs", redirect_uris=["http://127.0.0.1:4711/callback"],
        token_endpoint_auth_method="none", grant_types=["authorization_code", "refresh_token"]), kept, open_browser, come_back)


async def connected(auth, use):
    async with httpx.AsyncClient(auth=auth, follow_redirects=True) as http:
        async with streamable_http_client(url, http_client=http) as (read, write, *_):
            async with ClientSession(read, write) as session:
                await session.initialize()

                async def who():
                    return (await session.call_tool("who", {})).content[0].text
                await use(who)


async def main():
    auth = provider()

    async def first(who):
        tell("called", text=await who(), times=len(back))
        before = kept.times
        auth.context.token_expiry_time = 1
        tell("refreshed", text=await who(), times=kept.times - before)
    await connected(auth, first)

    async def again(who):
        tell("came back", text=await who(), times=len(back))
    await connected(provider(), again)


anyio.run(main)
