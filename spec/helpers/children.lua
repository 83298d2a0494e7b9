-- The processes that specs have started and not yet seen end. Loaded before all specs (output.lua), so that there is one
-- such list however often busted loads the other helpers anew.
local uv = require "luv"

local children = { alive = {} }

-- At the very end of a run: nothing may outlive it.
function children.kill_all()
  for pid in pairs(children.alive) do
    uv.kill(pid, "sigkill")
  end
end

return children
