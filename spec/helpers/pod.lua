-- examples/kubernetes as kubelet and kustomize make it: the objects of the folder, and the files of its pod below a
-- folder of the spec.
--   local pod <close> = pod.new()     pod.root, pod.objects, pod:update("tools", function(files) … end)
local lyaml = require "lyaml"
local uv = require "luv"
local example = require "spec.helpers.example"
local free_port = require "spec.helpers.free_port"
local gateway = require "spec.helpers.gateway"
local shell = require "spec.helpers.shell"

local pod = { folder = "examples/kubernetes/" }
pod.__index = pod

function pod.load(name) return lyaml.load(example.read(pod.folder .. name)) end

--- The files of a generator of kustomization.yaml, by their keys. `secrets` are the contents of files that are not in
--- the repository.
function pod.generated(generator, secrets)
  local data = {}
  for _, path in ipairs(generator.files) do
    local key = path:match "[^/]+$"
    assert(not data[key], "two files with the key " .. key)
    data[key] = secrets and secrets[key] or example.read(pod.folder .. path)
  end
  return data
end

--- All objects: those of the files, and those that kustomization.yaml makes, by "Kind/name".
function pod.objects(secrets)
  local kustomization, all = pod.load "kustomization.yaml", {}
  for _, name in ipairs(kustomization.resources) do
    local one = pod.load(name)
    all[one.kind .. "/" .. one.metadata.name] = one
  end
  for _, one in ipairs(kustomization.configMapGenerator) do
    all["ConfigMap/" .. one.name] = { apiVersion = "v1", kind = "ConfigMap", metadata = { name = one.name }, data = pod.generated(one) }
  end
  for _, one in ipairs(kustomization.secretGenerator) do
    all["Secret/" .. one.name] = { apiVersion = "v1", kind = "Secret", metadata = { name = one.name }, data = pod.generated(one, secrets) }
  end
  return all, kustomization
end

local function make_folder(path) assert(gateway.run_program("/bin/mkdir", { "-p", path }) == 0) end

--- Replaces the files of a volume as kubelet does: a new folder beside the old one, then the link ..data, which is
--- renamed; links for new keys, none for old ones; and the old folder goes.
function pod:put(volume, files)
  local dir, count = self.mounts[volume], self.count + 1
  self.count = count
  local new = ("..2026_11_26_10_00_%02d.%09d"):format(count, count * 7919)
  local old = uv.fs_readlink(dir .. "/..data")
  make_folder(dir .. "/" .. new)
  local is_secret = volume == "secrets" -- the digits of a hash may look like a port
  for key, text in pairs(files) do shell.write(dir .. "/" .. new .. "/" .. key, is_secret and text or self:placed(text)) end
  assert(uv.fs_symlink(new, dir .. "/..data_tmp"))
  assert(uv.fs_rename(dir .. "/..data_tmp", dir .. "/..data"))
  for key in pairs(files) do
    if not uv.fs_lstat(dir .. "/" .. key) then assert(uv.fs_symlink("..data/" .. key, dir .. "/" .. key)) end
  end
  for key in pairs(self.files[volume] or {}) do
    if not files[key] then os.remove(dir .. "/" .. key) end
  end
  if old then gateway.run_program("/bin/rm", { "-r", dir .. "/" .. old }) end
  self.files[volume] = files
end

--- Puts what `change` makes of the volume's files.
function pod:update(volume, change)
  local files = {}
  for key, text in pairs(self.files[volume]) do files[key] = text end
  change(files)
  self:put(volume, files)
end

--- A text of the example with the paths of the pod below the folder of the spec, and ports that are free.
function pod:placed(text)
  return (text:gsub("%f[%w/]/gateway/", self.root .. "/gateway/"):gsub("/var/lib/moonpool", self.root .. "%0"):gsub("/run/moonpool", self.root .. "%0")
    :gsub("%f[%d]730[01]%f[%D]", self.ports))
end

--- Makes the files of the pod. `secrets`: the contents of the Secret.
function pod.new(secrets)
  local self = setmetatable({ root = gateway.new_folder(), ports = {}, mounts = {}, files = {}, count = 0, writable = {} }, pod)
  for _, port in ipairs { "7300", "7301" } do self.ports[port] = tostring(free_port()) end
  self.all, self.kustomization = pod.objects(secrets)
  self.spec = self.all["Deployment/moonpool"].spec.template.spec
  self.container = self.spec.containers[1]
  local volumes = {}
  for _, one in ipairs(self.spec.volumes) do volumes[one.name] = one end
  for _, mount in ipairs(self.container.volumeMounts) do
    local volume = assert(volumes[mount.name], "no volume " .. mount.name)
    self.mounts[mount.name] = self.root .. mount.mountPath
    make_folder(self.root .. mount.mountPath)
    if volume.emptyDir then
      self.writable[#self.writable + 1] = mount.mountPath
    else
      assert(mount.readOnly, mount.name)
      local source = volume.configMap and "ConfigMap/" .. volume.configMap.name or "Secret/" .. volume.secret.secretName
      self:put(mount.name, assert(self.all[source], source).data)
    end
  end
  return self
end

--- Runs a command of the example in the container: exit code, stdout, stderr.
function pod:run(command)
  local list = {}
  for i, word in ipairs(command) do list[i] = self:placed(word) end
  assert(table.remove(list, 1) == "moonpool")
  return gateway.exec(list, { env = self:env(), cwd = self.mounts.state })
end

--- The variables of the container.
function pod:env()
  local env = { STATE_DIRECTORY = self.root .. "/var/lib/moonpool", RUNTIME_DIRECTORY = self.root .. "/run/moonpool" }
  for _, one in ipairs(self.container.env) do env[one.name] = one.value end
  return env
end

--- Starts the gateway of the pod.
function pod:start() return gateway.start { dir = self.mounts.config, env = self:env() } end

function pod:__close() gateway.run_program("/bin/rm", { "-rf", self.root }) end

return pod
