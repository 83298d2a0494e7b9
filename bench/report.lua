-- report.lua: writes the figures of bench.lua as docs/benchmarks.md and docs/benchmarks.svg.
local report = {}

local SERVERS = { "bare libh2o", "moonpool", "nginx + Lua" }
local COLORS = { ["bare libh2o"] = "#9aa4b2", moonpool = "#2f6fdb", ["nginx + Lua"] = "#4b9b60" }
local TEXT, FAINT = "#24292f", "#d0d7de"
local FONT = "system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif"

local function write(path, text)
  local file <close> = assert(io.open(path, "wb"))
  file:write(text)
end

-- 12345 as "12,345".
local function grouped(n)
  local text = ("%.0f"):format(n)
  repeat
    local count
    text, count = text:gsub("^(%d+)(%d%d%d)", "%1,%2")
  until count == 0
  return text
end

local function time_of(us)
  if us < 1000 then return ("%.0f µs"):format(us) end
  return (us < 100000 and "%.1f ms" or "%.0f ms"):format(us / 1000)
end

-- -- the page -----------------------------------------------------------------------------------------------------------

local function add_table(out, head, rows)
  out[#out + 1] = "| " .. table.concat(head, " | ") .. " |"
  out[#out + 1] = "|" .. ("---|"):rep(#head)
  for _, row in ipairs(rows) do out[#out + 1] = "| " .. table.concat(row, " | ") .. " |" end
  out[#out + 1] = ""
end

local function add_calls(out, comparison)
  local rows = {}
  for _, point in ipairs(comparison.points) do
    for _, name in ipairs(SERVERS) do
      local row = point.rows[name]
      if row then
        rows[#rows + 1] = { tostring(point.connections), name, grouped(row.rate), ("%.2f s"):format(row.cost / 10), time_of(row.p50),
          time_of(row.p99), ("%.2f"):format(row.of_bare),
          row.of_nginx == row.of_nginx and ("%.2f"):format(row.of_nginx) or "" }
      end
    end
  end
  add_table(out, { "connections", "server", "calls/s", "CPU per 100,000", "p50", "p99", "CPU, bare = 1", "CPU, nginx = 1" }, rows)
end

local function page(f)
  local out = {}
  local function line(text, ...) out[#out + 1] = select("#", ...) > 0 and text:format(...) or text end
  line "# Benchmarks"
  line ""
  line("`./dev bench` measures this and writes this page. Figures are of one machine on one day: compare rows of one table with each other, " ..
    "not with another page.")
  line ""
  line "![Processor time, calls, instructions and memory](benchmarks.svg)"
  line ""
  local m = f.machine
  line("%s, %d cores, %s of memory; load average %s when the run began. %s.", m.cpu, m.cores, m.memory, m.load, m.date)
  line("moonpool %s; %s.", f.machine.moonpool, table.concat(f.machine.versions, ", "))
  line ""
  line "## Calls"
  line ""
  line("The three servers take turns in one run, with %d workers each and the load generator wrk on the same cores: medians of %d rounds " ..
    "of %d s. A ratio is the median of those of the rounds. Each server answers the same bytes. nginx + Lua ([bench/peers/mcp.lua](../bench/peers/mcp.lua)) " ..
    "is a hand-written endpoint for LuaJIT with lua-cjson that checks what moonpool checks; bare libh2o checks nothing.",
    f.workers, f.rounds, f.seconds)
  line ""
  for _, comparison in ipairs(f.comparisons) do
    line("### %s", comparison.title)
    line ""
    add_calls(out, comparison)
  end
  line "## Instructions"
  line ""
  line("User-space instructions of one request, by its shape: callgrind, one keep-alive connection. A spec fails when a shape takes 3 % more " ..
    "than [recorded](../bench/instructions.txt).")
  line ""
  local rows = {}
  for i, row in ipairs(f.instructions) do rows[i] = { row.name, grouped(row.count), row.text } end
  add_table(out, { "shape", "instructions", "what it is" }, rows)
  line "## Streams"
  line ""
  line("%s quiet streams of each kind. What is left: the part of that memory which the process still has 3 s after their clients closed " ..
    "or reset all connections.", grouped(f.stream_count))
  line ""
  rows = {}
  for i, row in ipairs(f.streams) do
    rows[i] = { row.name, row.departure, ("%.1f KB"):format(row.kb), ("%.1f s"):format(row.open_s),
      row.fan_out_ms and ("%.0f ms"):format(row.fan_out_ms) or "", ("%.0f %%"):format(row.left * 100) }
  end
  add_table(out, { "kind", "clients leave by", "each", "until all were open", "one event to all", "left" }, rows)
  line "The times are those of one client process in Lua on the same cores, too."
  line ""
  line "## Reload under load"
  line ""
  local r = f.reload
  line("%d s of %d connections: without reloads %s calls/s with p99 %s; with a reload every second %s calls/s with p99 %s, %d reloads, " ..
    "no call failed.", r.seconds, r.connections, grouped(r.still.rate), time_of(r.still.p99), grouped(r.reloading.rate), time_of(r.reloading.p99), r.count)
  line ""
  line "## Start and size"
  line ""
  line("From the start of the process to its first answer: %.1f ms, the median of %d starts. Idle, with two tools, %.1f MB resident, of them %.1f MB " ..
    "its own, in no file. The stripped binary has %.2f MB.", f.start_ms, f.starts, f.idle.all, f.idle.own, f.binary / 1e6)
  return table.concat(out, "\n") .. "\n"
end

-- -- the chart ------------------------------------------------------------------------------------------------------------

local function escape(text) return (text:gsub("[&<>]", { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;" })) end

local svg = {}

local function put(text, ...) svg[#svg + 1] = text:format(...) end

local function label(x, y, text, options)
  options = options or {}
  put('<text x="%.1f" y="%.1f" font-size="%s" fill="%s"%s%s>%s</text>', x, y, options.size or 12, options.fill or TEXT,
    options.anchor and ' text-anchor="' .. options.anchor .. '"' or "", options.bold and ' font-weight="600"' or "", escape(text))
end

local function bar(x, y, width, height, color) put('<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="2" fill="%s"/>', x, y, width, height, color) end

-- Horizontal bars below a title: { label, value, shown, color }.
local function bars(x, y, width, title, rows, label_width)
  label(x, y, title, { bold = true, size = 13 })
  local most, room = 0, width - label_width - 70
  for _, row in ipairs(rows) do most = math.max(most, row.value) end
  local top = y - 10
  for _, row in ipairs(rows) do
    top = top + 22
    label(x + label_width - 8, top + 12, row.label, { anchor = "end" })
    bar(x + label_width, top, math.max(1, row.value / most * room), 16, row.color)
    label(x + label_width + row.value / most * room + 6, top + 12.5, row.shown, { size = 11 })
    if row.ends_group then top = top + 8 end
  end
end

-- Columns in groups: calls/s of each server by connections.
local function columns(x, y, width, height, title, points)
  label(x, y, title, { bold = true, size = 13 })
  local most, base = 0, y + height
  for _, point in ipairs(points) do
    for _, row in pairs(point.rows) do most = math.max(most, row.rate) end
  end
  local step = 10 ^ math.floor(math.log(most, 10))
  if most / step < 3 then step = step / 2 end
  for value = 0, most, step do
    local at = base - value / most * (height - 30)
    put('<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>', x + 40, at, x + width, at, FAINT)
    label(x + 34, at + 4, value == 0 and "0" or ("%.0fk"):format(value / 1000), { anchor = "end", size = 11 })
  end
  local group = (width - 40) / #points
  for i, point in ipairs(points) do
    local left, each = x + 40 + (i - 1) * group + group * 0.12, group * 0.76 / #SERVERS
    for k, name in ipairs(SERVERS) do
      local row = point.rows[name]
      if row then
        local tall = row.rate / most * (height - 30)
        bar(left + (k - 1) * each + 1, base - tall, each - 2, tall, COLORS[name])
      end
    end
    label(left + group * 0.38, base + 16, tostring(point.connections), { anchor = "middle", size = 11 })
  end
  label(x + 40 + (width - 40) / 2, base + 33, "connections", { anchor = "middle", size = 11 })
end

local function chart(f)
  svg = {}
  local width, height = 900, 640
  put('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" role="img" aria-label="Benchmarks of moonpool" font-family="%s">',
    width, height, width, FONT)
  svg[#svg + 1] = "<!-- Made by ./dev bench. -->"
  put('<rect width="%d" height="%d" rx="8" fill="#ffffff" stroke="%s"/>', width, height, FAINT)
  local at = 24
  for _, name in ipairs(SERVERS) do
    bar(at, 18, 12, 12, COLORS[name])
    label(at + 18, 28.5, name)
    at = at + 40 + #name * 7
  end
  label(width - 24, 28.5, ("%s, %d cores; %s"):format(f.machine.cpu, f.machine.cores, f.machine.date), { anchor = "end", size = 11, fill = "#57606a" })

  local first, rows = f.comparisons[1], {}
  for _, comparison in ipairs(f.comparisons) do
    for _, point in ipairs(comparison.points) do
      if point.connections == 64 then
        for _, name in ipairs(SERVERS) do
          local row = point.rows[name]
          if row then
            rows[#rows + 1] = { label = name == "moonpool" and comparison.short or "", value = row.cost / 10,
              shown = ("%.2f s"):format(row.cost / 10), color = COLORS[name], ends_group = name == SERVERS[#SERVERS] }
          end
        end
      end
    end
  end
  bars(24, 66, 420, "Processor time of 100,000 calls, 64 connections", rows, 120)
  columns(470, 66, 406, 220, "Calls per second: " .. (first.title:gsub("`", "")), first.points)

  rows = {}
  for i, row in ipairs(f.instructions) do rows[i] = { label = row.name, value = row.count, shown = grouped(row.count), color = COLORS.moonpool } end
  bars(24, 350, 420, "Instructions of one request", rows, 120)
  rows = {}
  for _, row in ipairs(f.streams) do
    if row.departure == "FIN" then rows[#rows + 1] = { label = row.name, value = row.kb, shown = ("%.1f KB"):format(row.kb), color = COLORS.moonpool } end
  end
  bars(470, 350, 406, ("Memory of a quiet stream, %s of them"):format(grouped(f.stream_count)), rows, 150)
  rows = {}
  for _, row in ipairs(f.streams) do
    if row.departure == "FIN" then
      rows[#rows + 1] = { label = row.name, value = row.left * 100, shown = ("%.0f %%"):format(row.left * 100), color = COLORS.moonpool }
    end
  end
  rows[#rows + 1] = { label = "all of it", value = 100, shown = "100 %", color = FAINT }
  bars(470, 480, 406, "Of it left 3 s after the clients have left", rows, 150)
  svg[#svg + 1] = "</svg>"
  return table.concat(svg, "\n") .. "\n"
end

-- The sections of the page that other benches have written (load.write_section).
local function other_sections()
  local file <close> = io.open "docs/benchmarks.md"
  return file and file:read("a"):match "\n<!%-%- [^\n]+ %-%->\n.*<!%-%- end of [^\n]+ %-%->\n" or ""
end

--- Writes both files. `f`: the figures, see bench.lua.
function report.write(f)
  write("docs/benchmarks.md", page(f) .. other_sections())
  write("docs/benchmarks.svg", chart(f))
end

return report
