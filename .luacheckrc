-- luacheck .: the library and specs are plain Lua 5.4; scripts see the names of lua/types/moonpool.d.lua and no others.
std = "lua54"
max_line_length = 160
exclude_files = { "build/", "lua/types/", "spec/clients/node_modules/", "spec/upstreams/node_modules/", "spec/upstreams/more/" }

files["lua/moonpool/registry/sandbox.lua"] = { globals = { "string.dump" } }
files["spec/"] = { std = "lua54+busted", self = false }
files["spec/helpers/host.lua"] = { globals = { "string.dump" } }

local script = {
  std = {
    read_globals = {
      "assert", "collectgarbage", "error", "getmetatable", "ipairs", "load", "next", "pairs", "pcall", "print", "rawequal", "rawget",
      "rawlen", "rawset", "require", "select", "setmetatable", "tonumber", "tostring", "type", "xpcall", "_G", "_VERSION",
      "string", "table", "math", "utf8", "os", "coroutine",
      "tool", "resource", "prompt", "t", "fail", "try", "text", "image", "audio", "link", "embed", "bytes", "user", "assistant", "ask",
      "fail_request", "enable", "disable", "enabled", "resource_updated", "sleep", "log", "json", "http", "fs", "exec", "env", "secret",
      "closing", "store", "digest", "base64", "trace", "uuid", "regex", "uri", "time", "upstream", "parallel", "sqlite", "jwt", "auth", "job", "policy",
      "limit", "quota", "metrics", "seconds", "minutes", "hours",
    },
  },
}
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
