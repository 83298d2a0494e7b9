-- luacheck .: the library and specs are plain Lua 5.4; scripts see the names of lua/types/moonpool.d.lua and no others.
std = "lua54"
max_line_length = 160
exclude_files = { "build/", "lua/types/", "spec/clients/node_modules/", "spec/upstreams/node_modules/", "spec/upstreams/more/" }

files["lua/moonpool/registry/sandbox.lua"] = { globals = { "string.dump" } }
files["lua/moonpool/workbench/format/terminal.lua"] = { globals = { "io", "print" } }
files["spec/"] = { std = "lua54+busted", self = false }
files["spec/helpers/host.lua"] = { globals = { "string.dump" } }

-- The names of Lua's own library that scripts have; those of moonpool stand in lua/types/moonpool.d.lua.
local known = {
  "assert", "collectgarbage", "error", "getmetatable", "ipairs", "load", "next", "pairs", "pcall", "print", "rawequal", "rawget",
  "rawlen", "rawset", "require", "select", "setmetatable", "tonumber", "tostring", "type", "xpcall", "_G", "_VERSION",
  "string", "table", "math", "utf8", "os", "coroutine",
}
for line in io.lines "lua/types/moonpool.d.lua" do
  known[#known + 1] = line:match "^([%w_]+) = " or line:match "^function ([%w_]+)%("
end

local script = { std = { read_globals = known } }
files["scripts/"] = script
files["examples/"] = script
files["packaging/scripts/"] = script
for _, folder in ipairs { "scripts", "examples" } do
  files[folder .. "/**/*_spec.lua"] = {
    read_globals = { "describe", "it", "before_each", "after_each", "call", "read", "get_prompt", "fake", "assert" },
  }
end
files["examples/weather/service.lua"] = { std = "lua54" }
files["bench/"] = { globals = { "wrk" } }
files["bench/peers/mcp.lua"] = { std = "luajit", globals = { "ngx" } }
