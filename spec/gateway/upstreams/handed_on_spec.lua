-- Questions of upstreams that name no call: those over stdio, HTTP+SSE and GET streams. They go to the newest call of
-- the channel. If that is answered before its client has the question, the question goes on to another call of the
-- channel; without one the upstream gets a refusal at once. No question is lost.
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local SAMPLE <const> = '{"messages":[{"role":"user","content":{"type":"text","text":"hi"}}],"maxTokens":10}'
local EVERYTHING <const> = { elicitation = { form = {}, url = {} }, sampling = { tools = {}, context = {} } }
local HELLO <const> = { role = "assistant", content = { type = "text", text = "hello" }, model = "m" }
local KINDS <const> = { { "2025-11-25", "http" }, { "2025-06-18", "stdio" }, { "2024-11-05", "sse" } }
local ROUNDS <const>, AT_ONCE <const> = 5, 8

local function text(x, bytes) return x:complete(('{"content":[{"type":"text","text":"%s"}]}'):format(bytes)) end

-- Asks the client of a call beside the call's own stream; `done` gets the answer.
local function ask_beside(u, x, done)
  if u.kind ~= "http" then return x:ask("sampling/createMessage", SAMPLE, done) end
  u.asked = u.asked + 1
  local id, session = '"q' .. u.asked .. '"', x.session
  session.questions = session.questions or {}
  session.questions[id] = done
  session.stream:chunk(('event: message\ndata: {"jsonrpc":"2.0","id":%s,"method":"sampling/createMessage","params":%s}\n\n'):format(id, SAMPLE))
end

-- The tool `slow` waits until `quick` is called, which asks for it beside its own answer; `alone` asks and answers at once.
-- `busy` asks, and is answered when its question is.
local function start(kind)
  local u = upstream.start { revision = kind[1], transport = kind[2] }
  u:offer("tools", { "slow", "quick", "alone", "busy", "echo" })
  local waiting = {}
  u.answers = {}
  function u.handlers.slow(x, reply) table.insert(waiting, { x, reply }) end
  function u.handlers.quick(x, reply)
    local slow = table.remove(waiting, 1)
    ask_beside(u, slow[1], function(json) slow[2](text(slow[1], json.result and json.result.content.text or "refused")) end)
    reply(text(x, "quick"))
  end
  function u.handlers.alone(x, reply)
    ask_beside(u, x, function(json) table.insert(u.answers, json) end)
    reply(text(x, "alone"))
  end
  function u.handlers.busy(x, reply)
    ask_beside(u, x, function(json) reply(text(x, json.result and json.result.content.text or "refused")) end)
  end
  return u
end

local function params(name) return { name = name, arguments = {} } end

-- The call that repeats one of a stateless client with what it was asked; nil if `answer` is the last one.
local function again(name, answer)
  if not answer.result or answer.result.resultType ~= "input_required" then return nil end
  local made = params(name)
  made.requestState, made.inputResponses = answer.result.requestState, {}
  for key in pairs(answer.result.inputRequests) do made.inputResponses[key] = HELLO end
  return made
end

-- The texts of the results of calls, by their order; their client answers what it is asked on any of their streams.
local function finish_asked(c, streams)
  local answered, found = {}, {}
  local function is_done()
    for i, stream in ipairs(streams) do
      local is_body = not found[i] and stream:has_begun() and not stream:head(20).sse
      for _, message in ipairs(is_body and { stream:answer(20) } or found[i] and {} or stream:messages()) do
        if message.method == "sampling/createMessage" and not answered[message.id] then
          answered[message.id] = true
          c:post { jsonrpc = "2.0", id = message.id, result = HELLO }
        elseif message.id == stream.id and not message.method then
          found[i] = upstream.text(message)
        end
      end
    end
    return #found == #streams
  end
  wait.for_fact("all answers", 40, is_done)
  return found
end

-- Waits for the answers of all calls of a stateless client, { name, stream }, in whatever order they come. Returns their
-- texts.
local function finish_all(c, calls)
  local texts = {}
  while calls[1] do
    local i = wait.for_fact("an answer", 40, function()
      for i, one in ipairs(calls) do
        if one[2]:has_begun() then return i end
      end
    end)
    local name, stream = table.unpack(table.remove(calls, i))
    local answer = stream:answer(30)
    stream:close()
    local more = again(name, answer)
    if more then
      calls[#calls + 1] = { name, c:open("tools/call", more) }
    else
      texts[#texts + 1] = upstream.text(answer)
    end
  end
  return texts
end

for _, kind in ipairs(KINDS) do
  describe("a question of an upstream of " .. kind[1] .. " over " .. kind[2], function()
    for _, revision in ipairs { "2026-07-28", "2025-11-25" } do
      it("goes on from a call of " .. revision .. " that is answered meanwhile to the one that waits", function()
        local u <close> = start(kind)
        local g <close> = upstream.gateway({ one = u }, { workers = 2, entries = upstream.plain { one = u } })
        local c <close> = g:client(revision, { capabilities = EVERYTHING })
        -- calls of stateless clients take turns after the first doubt
        for n = 1, revision == "2026-07-28" and 1 or 4 do
          local slow = c:open("tools/call", params "slow")
          wait.for_fact("the slow call", 20, function() return u:ran "slow" == n end)
          local quick = c:open("tools/call", params "quick")
          if revision == "2026-07-28" then
            assert.equal("quick", upstream.text(quick:answer(20)))
            assert.same({ "hello" }, finish_all(c, { { "slow", slow } }))
          else -- the client may have had the question before the answer came
            assert.same({ "hello", "quick" }, finish_asked(c, { slow, quick }))
          end
        end
      end)

      it("is refused at once where no other call of " .. revision .. " waits", function()
        local u <close> = start(kind)
        local g <close> = upstream.gateway({ one = u }, { workers = 2, entries = upstream.plain { one = u } })
        local c <close> = g:client(revision, { capabilities = EVERYTHING })
        for n = 1, 4 do
          local alone = c:open("tools/call", params "alone")
          assert.equal("alone", revision == "2026-07-28" and upstream.text(alone:answer(20)) or finish_asked(c, { alone })[1])
          wait.for_fact("the refusal, or the answer of the client", 20, function()
            u:all {}
            return #u.answers == n
          end)
          assert.is_truthy(u.answers[n].error or revision ~= "2026-07-28" and u.answers[n].result)
        end
      end)
    end

    it("is answered or refused, also beside many calls at once", function()
      local u <close> = start(kind)
      local g <close> = upstream.gateway({ one = u }, {
        workers = 2, entries = upstream.plain({ one = u }, { one = { timeout = "30s" } }), constants = { upstream_questions_per_principal = 100000 },
      })
      local c <close> = g:client("2026-07-28", { capabilities = EVERYTHING })
      for _ = 1, ROUNDS do
        local calls = {}
        for _ = 1, AT_ONCE do
          calls[#calls + 1] = { "busy", c:open("tools/call", params "busy") }
          calls[#calls + 1] = { "echo", c:open("tools/call", params "echo") }
        end
        for _, said in ipairs(finish_all(c, calls)) do assert.is_true(said == "hello" or said == "refused" or said == "{}", said) end
      end
    end)
  end)
end
