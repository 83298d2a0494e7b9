-- docs/terminal.svg: a terminal in which the commands below really ran. `./dev picture` writes it; needs script(1) of
-- bsdutils for a terminal.
local program = assert(arg[1], "the binary")

-- The commands that the picture shows; with the command that runs instead, if the two differ.
local SCENE <const> = [==[
type_() { sleep 0.3; printf '\033[1m$ %s\033[0m\n' "$1"; }
type_ 'moonpool run --trace --watch &'
moonpool run --trace --watch --log-level error --listen 127.0.0.1:7398 & server=$!
sleep 0.5
type_ 'moonpool call -u http://127.0.0.1:7300/mcp greet name=Ann'
moonpool call -u http://127.0.0.1:7398/mcp greet name=Ann 2>/dev/null
type_ 'moonpool call report'
moonpool call report 2>&1 | grep 'may not'
type_ "sed -i 's/Hello/Good day/' scripts/tools/greet.lua"
sed -i 's/Hello/Good day/' scripts/tools/greet.lua
sleep 0.6
type_ "echo '(' >> scripts/tools/greet.lua        # a mistake: the previous version still serves"
echo '(' >> scripts/tools/greet.lua
sleep 0.6
type_ 'moonpool call -u http://127.0.0.1:7300/mcp greet name=Ann'
moonpool call -u http://127.0.0.1:7398/mcp greet name=Ann 2>/dev/null
kill $server; wait $server 2>/dev/null
sed -i '$d' scripts/tools/greet.lua
type_ 'moonpool explain ann refund --scopes orders:read'
moonpool explain ann refund --scopes orders:read
]==]

local FILES <const> = {
  ["moonpool.yaml"] = "admin: {listen: 127.0.0.1:7399}\n",
  ["scripts/tools/greet.lua"] = "--- Greet.\n---@param name string\nreturn function(name)\n  return \"Hello, \" .. name .. \"!\"\nend\n",
  ["scripts/tools/report.lua"] = "--- The report.\nreturn function() return fs.read \"data/b.csv\" end\n",
  ["scripts/tools/refund.lua"] = 'return tool { "Pay back.", scopes = { "orders:write" }, function() return "paid back" end }\n',
}

local COLOURS <const> = {
  ["31"] = "#f47067", ["32"] = "#8ddb8c", ["33"] = "#f69d50", ["34"] = "#6cb6ff",
  ["35"] = "#dcbdfb", ["36"] = "#76e3ea", ["2"] = "#8b949e",
}
local WIDTH <const>, LINE <const>, CHARACTER <const> = 104, 19, 8.1

local function run(command)
  local pipe <close> = assert(io.popen(command))
  return pipe:read "a"
end

local dir = run("mktemp -d"):match "%S+"
os.execute(("mkdir -p %s/scripts/tools %s/bin && ln -s %s %s/bin/moonpool"):format(dir, dir, program, dir))
for path, text in pairs(FILES) do
  local file <close> = assert(io.open(dir .. "/" .. path, "wb"))
  file:write(text)
end
do
  local file <close> = assert(io.open(dir .. "/bin/scene", "wb"))
  file:write(SCENE)
end
local screen = run(("cd %s && PATH=%s/bin:$PATH script -qec 'stty cols %d; sh bin/scene' /dev/null </dev/null"):format(dir, dir, WIDTH))
os.execute("rm -r " .. dir)

local function escaped(text) return (text:gsub("[&<>]", { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;" })) end

-- A line in pieces of WIDTH characters.
local function wrapped(line)
  local pieces, columns, start = {}, 0, 1
  local i = 1
  while i <= #line do
    local escape = line:match("^\27%[[%d;]*m", i)
    if escape then
      i = i + #escape
    else
      if columns == WIDTH then
        pieces[#pieces + 1] = line:sub(start, i - 1)
        start, columns = i, 0
      end
      columns, i = columns + 1, utf8.offset(line, 2, i)
    end
  end
  pieces[#pieces + 1] = line:sub(start)
  return pieces
end

local lines = {}
for line in screen:gsub("\r", ""):gmatch "([^\n]*)\n" do
  line = line:gsub("127%.0%.0%.1:7398", "127.0.0.1:7300")
  -- Leaves out the log line of an error, because --watch prints the same text.
  if not line:find "script refused" then table.move(wrapped(line), 1, 99, #lines + 1, lines) end
end
while lines[#lines] == "" do lines[#lines] = nil end

local height = 2 * 16 + 24 + #lines * LINE
local width = math.ceil(WIDTH * CHARACTER + 32)
local out = {
  ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" role="img" aria-label="A terminal with moonpool">'):format(width, height, width),
  "<!-- Made by ./dev picture from a run. -->",
  ('<rect width="%d" height="%d" rx="8" fill="#1c2128"/>'):format(width, height),
  '<circle cx="20" cy="18" r="6" fill="#f47067"/><circle cx="40" cy="18" r="6" fill="#f69d50"/><circle cx="60" cy="18" r="6" fill="#8ddb8c"/>',
  '<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,monospace" font-size="13.5" fill="#c9d1d9" xml:space="preserve">',
}
for number, line in ipairs(lines) do
  local parts, style = {}, ""
  for escape, text in ("\27[0m" .. line):gmatch "\27%[([%d;]*)m([^\27]*)" do
    for code in (escape .. ";"):gmatch "(%d*);" do
      if code == "" or code == "0" then style = "" end
      if code == "1" then style = style .. ' font-weight="bold" fill="#ffffff"' end
      if COLOURS[code] then style = style .. (' fill="%s"'):format(COLOURS[code]) end
    end
    if text ~= "" then parts[#parts + 1] = style == "" and escaped(text) or ("<tspan%s>%s</tspan>"):format(style, escaped(text)) end
  end
  out[#out + 1] = ('<text x="16" y="%d">%s</text>'):format(40 + number * LINE, table.concat(parts))
end
out[#out + 1] = "</g>\n</svg>\n"
io.write(table.concat(out, "\n"))
