-- The 14 forms in which upstreams are met, and the 7 kinds of clients. Each form is a stub with a name of its own, which
-- is the prefix of its tools and the scheme of its URIs.
local forms = {}

--- `revision`: the newest that the server speaks. `silent`: nothing can tell that something has changed there.
-- `keeps_nothing`: clients share one connection there, by which nobody can be asked.
-- `shared`: one program for all, since it keeps nothing of a client between its requests.
forms.all = {
  { name = "sse24", revision = "2024-11-05", transport = "sse" },
  { name = "http24", revision = "2024-11-05", transport = "http" },
  { name = "stdio24", revision = "2024-11-05", transport = "stdio" },
  { name = "http25a", revision = "2025-03-26", transport = "http" },
  { name = "stdio25a", revision = "2025-03-26", transport = "stdio" },
  { name = "http25b", revision = "2025-06-18", transport = "http" },
  { name = "stdio25b", revision = "2025-06-18", transport = "stdio" },
  { name = "http25c", revision = "2025-11-25", transport = "http" },
  { name = "stdio25c", revision = "2025-11-25", transport = "stdio" },
  { name = "http26", revision = "2026-07-28", transport = "http" },
  { name = "stdio26", revision = "2026-07-28", transport = "stdio", shared = true },
  -- every answer is an event stream, as that of the official SDKs' servers is
  { name = "streams", revision = "2025-06-18", transport = "http", options = { answers = "sse" } },
  -- no session id and no GET stream: a server that keeps nothing
  { name = "lone", revision = "2025-03-26", transport = "http", options = { sessions = false, get = false, strict = false },
    silent = true, keeps_nothing = true },
  -- 2026-07-28 and all older revisions
  { name = "dual", revision = "2026-07-28", transport = "http", options = { revision = "dual" }, is_of_all = true },
}

forms.clients = {
  { revision = "2024-11-05", transport = "sse" },
  { revision = "2024-11-05", transport = "http" },
  { revision = "2025-03-26", transport = "http" },
  { revision = "2025-06-18", transport = "http" },
  { revision = "2025-11-25", transport = "http" },
  { revision = "2026-07-28", transport = "http" },
  { revision = "2025-11-25", transport = "stdio" },
}

return forms
