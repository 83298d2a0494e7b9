-- The processes that specs have started and that have not ended. Loaded before all specs (output.lua), so that there is
-- only one list, however often busted loads the other helpers again.
local uv = require "luv"

-- `preload`: the library that a sanitizer needs in a process that loads a module of ours, or nil.
local children = { alive = {} } -- postgres_data: folder of spec.helpers.postgres, or nil

-- At the very end of a run: no process may outlive it.
function children.kill_all()
  for pid in pairs(children.alive) do
    uv.kill(pid, "sigkill")
  end
  if children.postgres_data then os.execute("rm -rf '" .. children.postgres_data .. "'") end
end

return children
