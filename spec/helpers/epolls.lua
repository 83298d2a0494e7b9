-- What a process has registered in its epoll sets, as /proc says.
--   local tags = epolls.of_connections_to(g.pid, u.port)     -- the tags of its connections to this port that are in a set
local lfs = require "lfs"

local epolls = {}

local function read(path)
  local file = io.open(path)
  if not file then return "" end
  local text = file:read "a" or ""
  file:close()
  return text
end

-- The inodes of TCP sockets, in any state, whose peer has this port.
local function inodes_to(pid, port)
  local set = {}
  for _, name in ipairs { "tcp", "tcp6" } do
    for line in read(("/proc/%d/net/%s"):format(pid, name)):gmatch "[^\n]+" do
      local remote, inode = line:match "^%s*%d+: %x+:%x+ %x+:(%x+) %x+ %S+ %S+ %S+ +%d+ +%d+ (%d+)"
      if remote and tonumber(remote, 16) == port then set[inode] = true end
    end
  end
  return set
end

-- f(descriptor, what it refers to)
local function each_descriptor(pid, f)
  local folder = ("/proc/%d/fd"):format(pid)
  for name in lfs.dir(folder) do
    local target = name:find "^%d+$" and lfs.symlinkattributes(folder .. "/" .. name, "target")
    if target then f(name, target) end
  end
end

--- A list of the tags of all registrations of TCP connections to `port`, in text.
function epolls.of_connections_to(pid, port)
  local inodes, ours, sets, tags = inodes_to(pid, port), {}, {}, {}
  each_descriptor(pid, function(fd, target)
    local inode = target:match "^socket:%[(%d+)%]$"
    if inode and inodes[inode] then ours[fd] = true end
    if target:find "eventpoll" then sets[#sets + 1] = fd end
  end)
  for _, set in ipairs(sets) do
    for fd, tag in read(("/proc/%d/fdinfo/%s"):format(pid, set)):gmatch "tfd:%s*(%d+) events:%s*%x+ data:%s*(%x+)" do
      if ours[fd] then tags[#tags + 1] = tag end
    end
  end
  return tags
end

return epolls
