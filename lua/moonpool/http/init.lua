-- `http` of scripts: a request goes where the script's grants let it, redirects hop by hop, and waits without holding anybody up.

local host = require "moonpool.host"
local answer = require "moonpool.http.answer"
local grants = require "moonpool.grants"
local problem = require "moonpool.problem"
local reach = require "moonpool.http.reach"
local request = require "moonpool.http.request"

local http = {}

local MOST_HOPS = 5

local redirects = { [301] = true, [302] = true, [303] = true, [307] = true, [308] = true }

local function place(url)
  local name = url.host:find(":", 1, true) and "[" .. url.host .. "]" or url.host
  return name .. ":" .. url.port
end

-- Without query: it may hold secrets, and this is read by models and stands in logs.
local function shown(url)
  local default = url.scheme == "https" and 443 or 80
  return url.scheme .. "://" .. (url.port == default and place(url):gsub(":%d+$", "") or place(url)) .. url.path
end

local function words(method, url, what, hint)
  return method .. " " .. shown(url) .. ": " .. what .. (hint and hint ~= "" and " (" .. hint .. ")" or "")
end

local function log_refusal(path, url, why) host.log("warn", "http refused", { file = path, host = place(url), why = why }) end

-- Where a redirect leads; nil, why when it may not be followed.
local function follow(plan, url, status, location)
  local to, what, hint = host.http_url(location:gsub(" ", "%%20"), url.url)
  if not to then return nil, words(plan.method, url, "it redirects to where nobody can follow: " .. what, hint) end
  if url.scheme == "https" and to.scheme == "http" then return nil, words(plan.method, url, "it redirects from https to http",
    "follow = false gives its answer") end
  request.redirect(plan, status, url.scheme == to.scheme and url.host == to.host and url.port == to.port)
  return to
end

-- One hop: status, head, body or handle; or nil, why.
local function hop(self, plan, url, seconds, stream)
  local may = reach.find(self.grants, url)
  if not may then
    log_refusal(self.path, url, "no grant")
    return nil, grants.refusal("net", place(url), self.path)
  end
  if seconds <= 0 then return nil, words(plan.method, url, ("no answer within %g s"):format(plan.timeout)) end
  local status, head, rest, kind = host.http {
    method = plan.method, url = url.url, headers = request.lines(plan), body = plan.body, most = plan.most, seconds = seconds,
    reach = may, stream = stream,
  }
  if status then return status, head, rest end
  if kind == "late" then head = ("no answer within %g s"):format(plan.timeout) end
  if kind == "refused" then log_refusal(self.path, url, "its address") end
  return nil, words(plan.method, url, head, rest)
end

local function ask(self, method, address, options, stream)
  local plan, why = request.plan(method, address, options, stream)
  if not plan then return nil, why end
  if http.stand_in then return http.stand_in(plan, stream) end
  local until_then = host.now() + plan.timeout
  local url, what, hint = host.http_url(plan.url)
  if not url then return nil, what .. (hint ~= "" and " (" .. hint .. ")" or "") end
  for _ = 0, MOST_HOPS do
    local status, head, rest = hop(self, plan, url, until_then - host.now(), stream)
    if not status then return nil, head end
    local location = plan.follow and redirects[status] and answer.location(head)
    if not location then
      if not stream then return answer.whole(status, head, rest, url.url) end
      local asked, at = plan.method, url
      return answer.stream(status, head, rest, url.url, plan, function(...) return words(asked, at, ...) end)
    end
    if stream then host.http_close(rest) end
    local to
    to, why = follow(plan, url, status, location)
    if not to then return nil, why end
    url = to
  end
  return nil, words(plan.method, url, "more than " .. MOST_HOPS .. " redirects")
end

-- What the operator granted, once per file. What grants nothing is told by the loader.
local function read_grants(texts)
  local list = {}
  for _, text in ipairs(texts) do list[#list + 1] = reach.parse(text) end
  return list
end

--- The library of one script file. `granted` is what grants.of(path) gives.
function http.library(granted, path)
  local self = { grants = read_grants(granted.net), path = path }
  local library = {}
  for _, method in ipairs { "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD" } do
    library[method:lower()] = function(url, options) return ask(self, method, url, options) end
  end
  function library.request(options)
    if type(options) ~= "table" then problem.raise(1, "http.request needs a table", "as in http.request { method = \"OPTIONS\", url = … }") end
    local rest = {}
    for name, value in pairs(options) do
      if name ~= "method" and name ~= "url" then rest[name] = value end
    end
    return ask(self, options.method or "GET", options.url, rest)
  end
  function library.stream(url, options)
    local method, rest = "GET", options
    if type(options) == "table" and options.method then
      method, rest = options.method, {}
      for name, value in pairs(options) do
        if name ~= "method" then rest[name] = value end
      end
    end
    return ask(self, method, url, rest, true)
  end
  return library
end

return http
