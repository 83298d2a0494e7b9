-- The output of a run of specs: a line per file while they run, each failure in full below its file, all failures again
-- in short at the end, and a closing line that CI reads: "N passed, N failed, N skipped".
local uv = require "luv"
local pretty = require "pl.pretty"
local children = require "spec.helpers.children"

-- Writing to a socket or pipe that its reader has closed is an error of that write. Without a handler, SIGPIPE would
-- end busted.
local broken_pipe = uv.new_signal()
broken_pipe:start("sigpipe", function() end)
broken_pipe:unref()

-- The sanitizers' library is for this interpreter, and not for the programs that specs start: it finds leaks in git.
children.preload = os.getenv "LD_PRELOAD"
uv.os_unsetenv "LD_PRELOAD"

-- The environment of a function that busted runs.
local function environment_of(run)
  local f = type(run) == "function" and run or debug.getmetatable(run).__call
  for i = 1, math.huge do
    local name, value = debug.getupvalue(f, i)
    if name == "_ENV" or not name then return value end
  end
end

-- For a global name in a spec file busted looks into the tables of all blocks around it, each time: with `pairs` and
-- `string` in a loop that was half of what specs compute. Here its first table gets Lua's own names, and assert.
local function keep_names(file)
  local env = environment_of(file.run)
  for name, value in pairs(_G) do
    if env[name] == value then rawset(env, name, value) end
  end
  rawset(env, "assert", env.assert)
end

local marks = { success = ".", pending = "s", failure = "F", error = "E" }

local function text_of(message)
  if message == nil then
    return "no message"
  elseif type(message) == "table" and not (getmetatable(message) or {}).__tostring then
    return pretty.write(message)
  end
  return tostring(message)
end

-- The place of a failure in the spec's own file, rather than in a helper that the spec called.
local function place_of(failure)
  local at = failure.element.trace or {}
  local file = at.short_src
  if not file then
    return "busted"
  end
  local trace = (failure.trace or {}).traceback or ""
  for line in trace:gmatch("[^\n]+") do
    local n = line:find(file, 1, true) and line:match(":(%d+):")
    if n then
      return file .. ":" .. n
    end
  end
  return file .. ":" .. tostring(at.currentline or "?")
end

return function()
  local busted = require "busted"
  local handler = require "busted.outputHandlers.base"()
  local lint_failed = tonumber(os.getenv "MOONPOOL_LINT_FAILED" or "") or 0
  local shown, names = { failures = 0, errors = 0 }, {}

  local function write(...)
    io.write(...)
    io.flush()
  end

  local function show(failure)
    local name = place_of(failure) .. ": " .. (failure.name or "?")
    names[#names + 1] = name .. " -- " .. text_of(failure.message):gsub("%s+", " "):sub(1, 400)
    write("\n  ", name, "\n    ", (text_of(failure.message):gsub("\n", "\n    ")), "\n")
    local trace = failure.isError and (failure.trace or {}).traceback
    if trace then
      write("    ", (trace:gsub("^\n", ""):gsub("\n", "\n    ")), "\n")
    end
  end

  local function show_new()
    for _, kind in ipairs { "failures", "errors" } do
      for i = shown[kind] + 1, #handler[kind] do
        show(handler[kind][i])
      end
      shown[kind] = #handler[kind]
    end
  end

  function handler.file_start(file)
    keep_names(file)
    write(file.name, " ")
    return nil, true
  end

  function handler.file_end(file)
    write((" %.1fs\n"):format(file.duration or 0))
    show_new()
    return nil, true
  end

  function handler.test_end(_, _, status)
    write(marks[status] or "?")
    return nil, true
  end

  -- For spec/lanes.lua, which runs one process per file and closes the report itself: prints a line "%% KIND TEXT" for
  -- each fact.
  local function report_to_lanes(failed)
    for _, name in ipairs(names) do
      write("\n%% failed ", name)
    end
    for _, skipped in ipairs(handler.pendings) do
      write("\n%% skipped ", skipped.name, skipped.message and ": " .. text_of(skipped.message):gsub("\n", " ") or "")
    end
    write(("\n%%%% totals %d %d %d\n"):format(handler.successesCount, failed, handler.pendingsCount))
  end

  local function close_report(failed)
    if #names > 0 then
      write("\nfailed:\n  ", table.concat(names, "\n  "), "\n")
    end
    for _, skipped in ipairs(handler.pendings) do
      write("skipped: ", skipped.name, skipped.message and ": " .. text_of(skipped.message) or "", "\n")
    end
    write(("\n%d passed, %d failed, %d skipped\n"):format(handler.successesCount, failed, handler.pendingsCount))
  end

  function handler.suite_end()
    show_new()
    if lint_failed > 0 then
      names[#names + 1] = "lint: see the top of the output"
    end
    local failed = handler.failuresCount + handler.errorsCount + lint_failed
    if os.getenv "MOONPOOL_LANE" then
      report_to_lanes(failed)
    else
      close_report(failed)
    end
    return nil, true
  end

  -- busted would exit with the number of failures (256 failures would be 0), and close the Lua state, in which luv's
  -- callbacks then crash.
  function handler.exit()
    children.kill_all()
    os.exit(#names == 0)
  end

  local subscribe = handler.subscribe
  function handler:subscribe(options)
    subscribe(self, options)
    busted.subscribe({ "file", "start" }, handler.file_start)
    busted.subscribe({ "file", "end" }, handler.file_end)
    busted.subscribe({ "test", "end" }, handler.test_end)
    busted.subscribe({ "suite", "end" }, handler.suite_end)
    busted.subscribe({ "exit" }, handler.exit)
  end

  return handler
end
