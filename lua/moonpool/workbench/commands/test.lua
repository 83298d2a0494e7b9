-- moonpool test: the specs of the operator's scripts, one after the other, in a child that serves the scripts.

local json = require "moonpool.json"
local link = require "moonpool.workbench.client.link"
local stderr = require "moonpool.workbench.format.stderr"

-- Makes paths relative to the scripts' folder; nil, and the path that is not below the folder.
local function below(args)
  local root, found = args.scripts:gsub("/+$", "") .. "/", json.array {}
  for i, path in ipairs(args) do
    path = path:gsub("^%./", ""):gsub("/+$", "")
    if path .. "/" == root then
      found[i] = ""
    elseif path:sub(1, #root) == root then
      found[i] = path:sub(#root + 1)
    else
      return nil, path
    end
  end
  return found
end

local function indent(text) return "    " .. text:gsub("\n", "\n    ") end

local function run_all(ask, files, root)
  local count, failed = 0, 0
  local function tell(path, name, why)
    count = count + 1
    if why then failed = failed + 1 end
    print((why and "FAIL  " or "ok    ") .. root .. "/" .. path .. (name and "  " .. name or ""))
    if why then print(indent(why)) end
  end
  for _, file in ipairs(files) do
    if file.why then tell(file.path, nil, file.why) end
    for index, name in ipairs(file.specs) do
      local result, why, is_gone = ask("moonpool/specs", { path = file.path, index = index })
      tell(file.path, name, not result and why or result and result.failed)
      if is_gone then return count, failed end
    end
  end
  return count, failed
end

return function(args)
  io.stdout:setvbuf "line"
  local wanted, outside = below(args)
  if not wanted then
    return stderr.misuse(outside .. " is not below " .. args.scripts, "specs stand beside the scripts: " .. args.scripts .. "/tools/greet_spec.lua")
  end
  local child, why = link.child { "--specs", "--log-level", "info", args.config }
  if not child then return stderr.wrong(why) end
  -- every level is logged, so that notified() gets all messages
  local ask = link.asker(child, "test", link.able, "debug")
  local found, wrong = ask("moonpool/specs", { below = wanted })
  if not found then return link.lost(child, wrong) end
  local count, failed = run_all(ask, found.files, found.root)
  child.close()
  if count == 0 then return stderr.wrong("there are no specs", "a spec is a file such as " .. args.scripts .. "/tools/greet_spec.lua") end
  print(("%d %s, %s"):format(count, count == 1 and "spec" or "specs", failed == 0 and "all fine" or failed .. " failed"))
  return failed == 0 and 0 or 1
end
