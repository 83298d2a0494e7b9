-- What `moonpool new` writes: scripts that can be served as they are, and say by example how to go on.

local templates = {}

templates.tool = [[
-- A tool: what the model may call. Its name is this file's path below tools/.
return tool {
  "Say what this does, in a sentence the model reads before it decides to call it.",
  input = {
    name = t.string { "Whom it is about", min = 1, max = 100 },
    times = t.integer { "How often", min = 1, max = 10, default = 1 },
  },
  read_only = true,       -- it changes nothing: clients may call it without asking
  function(args, call)
    local lines = {}
    for i = 1, args.times do
      call:progress(i, args.times)
      lines[i] = "Hello, " .. args.name .. "!"
    end
    return table.concat(lines, "\n")   -- text; a table would be structured content; nil, "why" is a failure the model reads
  end,
}
]]

templates.resource = [[
-- A resource: what clients may read. A name in braces is a value that the handler gets; without braces it is one fixed document.
return resource {
  "Say what can be read here.",
  uri = "example://@NAME@/{id}",
  mime = "application/json",
  complete = { id = { "1", "2" } },     -- what clients may offer while somebody types
  function(vars)
    if not vars.id:find "^%d+$" then return nil end   -- nil: not found
    return { id = math.tointeger(vars.id), title = "The title of " .. vars.id }
  end,
}
]]

templates.prompt = [[
-- A prompt: a text that a person picks and sends to the model.
return prompt {
  "Say what it asks the model to do.",
  args = {
    subject = t.string "What it is about",
    tone = t.string { "How it should sound", complete = { "brief", "friendly", "formal" }, default = "brief" },
  },
  function(args)
    return { user("Write about " .. args.subject .. ". Keep it " .. args.tone .. ".") }
  end,
}
]]

templates.auth = [[
-- Who may come in: asked of every request, before anything else. See docs/auth.md; for keys, tokens and proxies there is one line each.
return auth {
  function(request)
    local key = try(request.headers["x-api-key"], "an API key is needed: the header x-api-key")
    if key ~= "change me" then return nil, "unknown API key" end
    return { id = "somebody", scopes = {} }
  end,
}
]]

return templates
