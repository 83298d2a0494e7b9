-- moonpool new: writes a new script from a template.

local stderr = require "moonpool.workbench.format.stderr"
local spec_templates = require "moonpool.workbench.format.spec_templates"
local suggest = require "moonpool.runtime.suggest"
local templates = require "moonpool.workbench.format.templates"
local wire = require "moonpool.wire"

local folders = { tool = "tools", resource = "resources", prompt = "prompts", job = "jobs", lib = "lib", policy = "policy", auth = "auth" }

local next_steps = {
  tool = function(name, file)
    local of = file and "-c" .. file .. " " or ""
    local test = "  moonpool test" .. (file and " -c" .. file or "")
    return "  next: edit it, then\n  moonpool check" .. (file or "") .. "\n" .. test .. "\n  moonpool call " .. of .. name
      .. " name=Ann times=2\n  moonpool run" .. (file or "") .. "     # serves it, and each change when you save it\n"
  end,
}

local function make_folders(path)
  local folder = path:sub(1, 1) == "/" and "/" or ""
  for part in path:gmatch "([^/]+)/" do
    folder = folder .. part
    local made, why = wire.mkdir(folder)
    if not made then return nil, folder .. ": " .. why end
    folder = folder .. "/"
  end
  return true
end

-- Makes a name for a Lua variable from the last part of a script's name.
local function identifier(name)
  local id = name:match "[^/]*$":gsub("%W", "_"):gsub("^%d", "_%0")
  return load("local " .. id) and id or id .. "_"
end

return function(args)
  local kind, name = args[1], args[2]
  if not folders[kind] then
    return stderr.misuse(kind and "there is no kind of script '" .. kind .. "'" or "new takes a kind and a name",
      suggest.hint(kind or "", folders) or "as in moonpool new tool greet; kinds are tool, resource, prompt, job, lib, policy, auth")
  end
  if not name or args[3] then return stderr.misuse("new takes a kind and one name", "as in moonpool new " .. kind .. " greet") end
  name = name:gsub("%.lua$", "")
  if not name:find "^[%w_-][%w_-]*[%w_/-]*$" or name:find "//" or name:find "/$" or #name > 128 then
    return stderr.misuse("'" .. name .. "' is not a valid name for a script", "letters, digits, '_' and '-', and '/' for folders, as in orders/refund")
  end
  local inner = name:match("^" .. folders[kind] .. "/(.+)$") or name:match("^scripts/" .. folders[kind] .. "/(.+)$")
  if inner then
    return stderr.misuse(("'%s' would be in a folder of its own below %s/%s"):format(name, args.scripts, folders[kind]),
      ("the name begins behind that: moonpool new %s %s"):format(kind, inner))
  end
  local path = ("%s/%s/%s.lua"):format(args.scripts, folders[kind], name)
  local ok, why = make_folders(path)
  if not ok then return stderr.wrong(why) end
  local known = kind == "lib" and name:gsub("/", ".") or name:gsub("/", "_")
  local function filled(template) return (template:gsub("@NAME@", known):gsub("@ID@", identifier(name))) end
  local made, wrong, is_there = wire.create(path, filled(templates[kind]))
  if is_there then return stderr.wrong(path .. " exists already", "choose another name, or remove it") end
  if not made then return stderr.wrong(path .. ": " .. wrong) end
  if args.fresh then
    made, wrong = wire.create(args.fresh, "# Everything has a default: `moonpool config` prints all keys.\n")
    if not made then return stderr.wrong(args.fresh .. ": " .. wrong) end
    print("wrote " .. args.fresh)
  end
  local spec = path:gsub("%.lua$", "_spec.lua")
  made, wrong, is_there = wire.create(spec, filled(spec_templates[kind]))
  if not made and not is_there then return stderr.wrong(spec .. ": " .. wrong) end
  local file = args.config and " " .. args.config
  io.stdout:write("wrote ", path, "\n", is_there and "left " or "wrote ", spec, is_there and " as it is\n" or "\n",
    next_steps[kind] and next_steps[kind](known, file) or "  next: edit it, then moonpool check" .. (file or "") .. " && moonpool test"
    .. (file and " -c" .. file or "") .. "\n")
  return 0
end
