-- Runs spec files, each in a busted process of its own, several of them side by side:
--   lua5.4 spec/lanes.lua [--lanes=N] [BUSTED OPTION | FILE | FOLDER]…
-- If N is not given, it is twice the number of processors, and up to six times while processors are idle: some specs
-- compute, and some wait most of their time. What has sanitizers or runs under qemu computes for longer: there it is the
-- number of processors, and up to three times while they are idle.
-- A file runs alone, after all others, if one of its first lines is "-- lane: alone": it measures the machine, or needs
-- most of it. With "-- lane: quiet" it needs a processor for itself: such files run before those, one on each processor.
-- With "-- lane: first" it starts before the others, since it takes long: then no lane is at work when the others have
-- ended.
-- Each file's report is printed whole when the file is done. The files that took longest, those that took most of the
-- processors, and the closing line that CI reads come last:
-- "N passed, N failed, N skipped".
-- After these, files that took longest in the run before (build/spec-times) start first, so that the lanes end
-- together. For files that have not run in this clone spec/times has the seconds; after a whole run on a quiet machine
--   sort -rn build/spec-times | awk '$1 >= 3' > spec/times
-- writes it anew.
-- TMPDIR of each process is a folder of its own, which is removed with all that the file left there.
-- MOONPOOL_LUA is the interpreter of busted, if it is another one.
-- MOONPOOL_PRELOAD names libraries for busted's LD_PRELOAD. MOONPOOL_LINT_FAILED is a count of failures to add.
local uv = require "luv"

local TIMES = "build/spec-times" -- lines of "SECONDS PATH"
local RECORDED_TIMES = "spec/times" -- lines of "SECONDS PATH", too; for files that have not run in this clone
local LONGEST_S = 900 -- the most seconds for one file: then its process is killed, and the file counts as failed
local LOOK_MS = 500 -- time between two looks at the processors
local IDLE = 0.15 -- the part of the processors' time that is idle, above which one more file is started
local MOST_LANES = 16 -- each lane has gateways, clients and upstreams of its own, which take some hundred MB of memory

local roots = { "spec/unit", "spec/modules", "spec/house", "spec/transcripts", "spec/gateway" }

-- -- the files to run -------------------------------------------------------------------------------------------------

local function is_folder(path)
  return (uv.fs_stat(path) or {}).type == "directory"
end

local function add_files(path, files)
  if not is_folder(path) then
    files[#files + 1] = path
    return
  end
  local names = {}
  local entries = assert(uv.fs_scandir(path))
  for name, kind in uv.fs_scandir_next, entries do
    if kind == "directory" or name:find "_spec%.lua$" then
      names[#names + 1] = name
    end
  end
  table.sort(names)
  for _, name in ipairs(names) do
    add_files(path .. "/" .. name, files)
  end
end

-- The word after "-- lane:", alone, quiet or first; nil for most files.
local function lane_of(path)
  local file <close> = assert(io.open(path))
  for _ = 1, 5 do
    local word = (file:read "l" or ""):match "^%-%- lane: (%a+)"
    if word then
      return word
    end
  end
end

-- The lanes that always run, and how many may.
local function default_lanes()
  local processors = uv.available_parallelism()
  local is_slow = os.getenv "ASAN_OPTIONS" or os.getenv "TSAN_OPTIONS" or os.getenv "MOONPOOL_EMULATED"
  if is_slow then return math.min(MOST_LANES, processors), math.min(MOST_LANES, 3 * processors) end
  return math.min(MOST_LANES, 2 * processors), math.min(MOST_LANES, 6 * processors)
end

local function read_times(path, known)
  local file <close> = io.open(path)
  for line in file and file:lines() or function() end do
    local seconds, spec = line:match "^(%S+) (.+)$"
    known[spec or ""] = tonumber(seconds)
  end
end

local function write_times(known)
  local file <close> = io.open(TIMES, "w") -- empty without a build folder: then the files run in alphabetical order
  for path, seconds in pairs(file and known or {}) do
    file:write(("%.1f %s\n"):format(seconds, path))
  end
end

local function sort_longest_first(files, known)
  local place, seconds = {}, {}
  for i, path in ipairs(files) do
    place[path] = i
    seconds[path] = (known[path] or 0) + (lane_of(path) == "first" and LONGEST_S or 0)
  end
  table.sort(files, function(a, b)
    local x, y = seconds[a], seconds[b]
    if x ~= y then
      return x > y
    end
    return place[a] < place[b]
  end)
end

local function read_arguments(list)
  local options, files = {}, {}
  local lanes, most = default_lanes()
  for _, word in ipairs(list) do
    if word:find "^%-%-lanes=" then
      lanes = assert(tonumber(word:match "=(%d+)$"), "--lanes wants a number, as in --lanes=2")
      most = lanes
    elseif word:find "^%-" then
      options[#options + 1] = word
    elseif uv.fs_stat(word) then
      add_files(word, files)
    else
      io.stderr:write(("there is no file or folder '%s': give paths below spec/\n"):format(word))
      os.exit(2)
    end
  end
  if #files == 0 then
    for _, root in ipairs(roots) do
      add_files(root, files)
    end
  end
  local together, quiet, alone = {}, {}, {}
  for _, path in ipairs(files) do
    local lane = lane_of(path)
    table.insert(lane == "alone" and alone or lane == "quiet" and quiet or together, path)
  end
  return lanes, most, options, together, quiet, alone
end

-- -- running a file ---------------------------------------------------------------------------------------------------

local function environment(preload)
  local list = {}
  for name, value in pairs(uv.os_environ()) do
    if name ~= "LD_PRELOAD" and name ~= "MOONPOOL_LINT_FAILED" and name ~= "MOONPOOL_PRELOAD" and name ~= "TMPDIR" then
      list[#list + 1] = name .. "=" .. value
    end
  end
  if (preload or "") ~= "" then
    list[#list + 1] = "LD_PRELOAD=" .. preload
  end
  list[#list + 1] = "MOONPOOL_LANE=1" -- output.lua leaves the closing line to this program
  return list
end

local totals = { passed = 0, failed = 0, skipped = 0 }
local failed, skipped, times = {}, {}, {}

-- Takes what `times` of the shell has written at the end of a report: its own time, and that of all that it started, as
-- "1m2.50s 0m0.75s" of a program's own and of the kernel's work. Returns the rest, and the seconds.
local function take_times(text)
  local rest, minutes, seconds, kernel_minutes, kernel_seconds =
    text:match "^(.*)\n%%%% times\n[^\n]*\n(%d+)m([%d.]+)s (%d+)m([%d.]+)s\n$"
  if not rest then return text, 0 end
  return rest, 60 * (minutes + kernel_minutes) + seconds + kernel_seconds
end

-- Removes from a file's report the lines that output.lua writes for this program, and returns the text for people.
local function take_report(path, text, code)
  local counted = false
  local shown = text:gsub("\n?%%%% (%w+) ([^\n]*)", function(kind, rest)
    if kind == "totals" then
      local p, f, s = rest:match "^(%d+) (%d+) (%d+)$"
      totals.passed, totals.failed, totals.skipped = totals.passed + p, totals.failed + f, totals.skipped + s
      counted = true
    else
      table.insert(kind == "failed" and failed or skipped, rest)
    end
    return ""
  end)
  if not counted then
    totals.failed = totals.failed + 1
    failed[#failed + 1] = ("%s: busted ended with %s before its report was complete"):format(path, code)
  end
  io.write((shown:gsub("\n+$", "")), "\n")
  io.flush()
end

local function start(path, arguments, env, folder, on_end)
  local out = assert(uv.new_pipe(false))
  local chunks, began, open, ended_with = {}, uv.hrtime(), 2, nil
  local words = table.move(arguments, 1, #arguments, 1, {})
  words[#words + 1] = path
  local timer = assert(uv.new_timer())
  local process
  local function done()
    open = open - 1
    if open > 0 then
      return
    end
    timer:close()
    local text, processor_s = take_times(table.concat(chunks))
    times[#times + 1] = { path = path, seconds = (uv.hrtime() - began) / 1e9, processor_s = processor_s }
    take_report(path, text, ended_with)
    on_end()
  end
  local options = {
    args = words, env = table.move(env, 1, #env, 2, { "TMPDIR=" .. folder }), stdio = { nil, out },
    detached = true, -- a process group of its own, so that it can be killed as a whole
  }
  process = assert(uv.spawn("/bin/sh", options, function(code, signal)
    ended_with = signal ~= 0 and "signal " .. signal or "code " .. code
    process:close()
    done()
  end))
  local pid = process:get_pid()
  timer:start(LONGEST_S * 1000, 0, function()
    chunks[#chunks + 1] = ("\n%s took longer than %d s and was killed\n"):format(path, LONGEST_S)
    uv.kill(-pid, "sigkill")
  end)
  out:read_start(function(_, chunk)
    if chunk then
      chunks[#chunks + 1] = chunk
    else
      out:close()
      done()
    end
  end)
  return pid
end

-- A process that is about to end may still write there, so this is tried twice.
local function remove(folder)
  local command = ("rm -rf -- '%s' 2>/dev/null"):format(folder)
  return os.execute(command) or os.execute(command)
end

-- -- all files --------------------------------------------------------------------------------------------------------

-- Returns a function that says which part of their time the processors were idle since it was called last.
local function idleness()
  local idle_before, all_before = 0, 0
  return function()
    local idle, all = 0, 0
    for _, processor in ipairs(uv.cpu_info() or {}) do
      for kind, ms in pairs(processor.times) do
        idle, all = idle + (kind == "idle" and ms or 0), all + ms
      end
    end
    local part = all > all_before and (idle - idle_before) / (all - all_before) or 0
    idle_before, all_before = idle, all
    return part
  end
end

-- `running`: the folders for temporary files of the processes, by pid.
local function run_all(files, lanes, most, arguments, env, running)
  local next_file, at_work, has_room = 1, 0, false
  local look, timer = idleness(), assert(uv.new_timer())
  local function go_on()
    local path = files[next_file]
    if not path then
      if at_work == 0 and not timer:is_closing() then timer:close() end
      return
    end
    if at_work >= (has_room and most or lanes) then
      return
    end
    next_file, at_work = next_file + 1, at_work + 1
    local folder = assert(uv.fs_mkdtemp((os.getenv "TMPDIR" or "/tmp") .. "/mp-XXXXXX"))
    local pid
    pid = start(path, arguments, env, folder, function()
      running[pid], at_work = nil, at_work - 1
      remove(folder)
      go_on()
    end)
    running[pid] = folder
  end
  look()
  timer:start(LOOK_MS, LOOK_MS, function()
    has_room = look() > IDLE
    go_on()
  end)
  for _ = 1, lanes do
    go_on()
  end
  uv.run()
end

-- Prints the files with most of `key`, in seconds.
local function print_first(key, most)
  table.sort(times, function(a, b)
    return a[key] > b[key]
  end)
  for i = 1, math.min(most, #times) do
    io.write(("  %6.1f s  %s\n"):format(times[i][key], times[i].path))
  end
end

local function report(began)
  if #times > 1 then
    local processor_s = 0
    for _, time in ipairs(times) do processor_s = processor_s + time.processor_s end
    io.write(("\n%d files in %.0f s; the slowest:\n"):format(#times, (uv.hrtime() - began) / 1e9))
    print_first("seconds", 10)
    io.write(("%.0f s of processors' time; the most:\n"):format(processor_s))
    print_first("processor_s", 40)
  end
  local lint_failed = tonumber(os.getenv "MOONPOOL_LINT_FAILED" or "") or 0
  if lint_failed > 0 then
    failed[#failed + 1] = "lint: see the top of the output"
    totals.failed = totals.failed + lint_failed
  end
  if #failed > 0 then
    io.write("\nfailed:\n  ", table.concat(failed, "\n  "), "\n")
  end
  for _, line in ipairs(skipped) do
    io.write("skipped: ", line, "\n")
  end
  io.write(("\n%d passed, %d failed, %d skipped\n"):format(totals.passed, totals.failed, totals.skipped))
end

-- A shell merges stdout and stderr: luv gives one pipe to one descriptor. It says what the processors worked, too.
local line <const> = '"$0" "$@" 2>&1; code=$?; printf "\\n%%%% times\\n"; times; exit $code'
local busted = { "-c", line, os.getenv "MOONPOOL_LUA" or "/usr/bin/lua5.4", "/usr/bin/busted", "--ignore-lua" }
local lanes, most, options, together, quiet, alone = read_arguments(arg)
local arguments = table.move(options, 1, #options, #busted + 1, busted)
local env, running, began = environment(os.getenv "MOONPOOL_PRELOAD"), {}, uv.hrtime()

for _, name in ipairs { "sigint", "sigterm" } do
  local signal = assert(uv.new_signal())
  signal:unref()
  signal:start(name, function()
    for pid, folder in pairs(running) do
      uv.kill(-pid, "sigkill")
      remove(folder)
    end
    os.exit(130)
  end)
end

local known = {}
read_times(RECORDED_TIMES, known)
read_times(TIMES, known)
sort_longest_first(together, known)
run_all(together, lanes, most, arguments, env, running)
local quiet_lanes <const> = math.min(lanes, uv.available_parallelism())
run_all(quiet, quiet_lanes, quiet_lanes, arguments, env, running)
run_all(alone, 1, 1, arguments, env, running)
for _, time in ipairs(times) do
  known[time.path] = time.seconds
end
write_times(known)
report(began)
os.exit(totals.failed == 0)
