-- The library `http` of scripts. A request, and each redirect of it, needs a grant of the script. Other calls run while
-- a request waits.

local host = require "moonpool.host"
local copied = require "moonpool.runtime.copied"
local answer = require "moonpool.lib.http.answer"
local grants = require "moonpool.runtime.grants"
local problem = require "moonpool.runtime.diagnostic"
local reach = require "moonpool.lib.http.reach"
local request = require "moonpool.lib.http.request"
local retry = require "moonpool.lib.http.retry"
local timed = require "moonpool.runtime.timed"

local http = {}

local MAX_HOPS = 5

local redirects = { [301] = true, [302] = true, [303] = true, [307] = true, [308] = true }

local function place(url)
  local name = url.host:find(":", 1, true) and "[" .. url.host .. "]" or url.host
  return name .. ":" .. url.port
end

-- The URL for error texts and the log, without its query: models read error texts, and a query may hold secrets.
local function shown(url)
  local default = url.scheme == "https" and 443 or 80
  return url.scheme .. "://" .. (url.port == default and place(url):gsub(":%d+$", "") or place(url)) .. url.path
end

local function words(method, url, what, hint)
  return method .. " " .. shown(url) .. ": " .. what .. (hint and hint ~= "" and " (" .. hint .. ")" or "")
end

local function log_refusal(path, url, why, grant) host.log.write("warn", "http refused", { file = path, host = place(url), why = why, grant = grant }) end

-- The URL that a redirect leads to; nil, why if the redirect must not be followed.
local function follow(plan, url, status, location)
  local to, what, hint = host.http.url(location:gsub(" ", "%%20"), url.url)
  if not to then return nil, words(plan.method, url, "the redirect cannot be followed: " .. what, hint) end
  if url.scheme == "https" and to.scheme == "http" then return nil, words(plan.method, url, "the redirect leads from https to http",
    "follow = false returns the redirect itself") end
  request.redirect(plan, status, url.scheme == to.scheme and url.host == to.host and url.port == to.port)
  return to
end

-- Sends one request without following redirects: status, head, body or handle; or nil, why.
local function hop(self, plan, url, seconds, stream)
  local may, grant = reach.find(self.grants, url)
  if not may then
    log_refusal(self.path, url, "no grant", grants.yaml("net", place(url), self.path))
    return nil, grants.refusal("net", place(url), self.path)
  end
  if seconds <= 0 then return nil, words(plan.method, url, ("no answer within %g s"):format(plan.timeout)) end
  local measured <close> = timed.start(grant, "http", grant.text)
  local status, head, rest, kind = host.http.send {
    method = plan.method, url = url.url, headers = request.lines(plan), body = plan.body, most = plan.most, seconds = seconds,
    reach = may, repeatable = retry.may_resend(plan), stream = stream, script = self.path,
  }
  measured.outcome = status and ("%dxx"):format(status // 100) or kind == "late" and "timeout" or kind == "refused" and "refused" or "error"
  if status then return status, head, rest end
  if kind == "late" then head = ("no answer within %g s"):format(plan.timeout) end
  if kind == "refused" then log_refusal(self.path, url, "its address") end
  return nil, words(plan.method, url, head, rest), kind
end

-- Sends a request and follows its redirects: an answer; or nil, why, kind. The kind is "unsent" if no server has
-- received any of it.
local function try(self, plan, deadline, stream)
  if http.stand_in then return http.stand_in(plan, stream) end
  local url, what, hint = host.http.url(plan.url)
  if not url then return nil, what .. (hint ~= "" and " (" .. hint .. ")" or "") end
  for hops = 0, MAX_HOPS do
    local status, head, rest = hop(self, plan, url, deadline - host.time.now(), stream)
    if not status then return nil, head, hops > 0 and rest == "unsent" and "unanswered" or rest end
    local location = plan.follow and redirects[status] and answer.location(head)
    if not location then
      if not stream then return answer.whole(status, head, rest, url.url) end
      local asked, at = plan.method, url
      return answer.stream(status, head, rest, url.url, plan, function(...) return words(asked, at, ...) end)
    end
    if stream then host.http.close(rest) end
    local to, why = follow(plan, url, status, location)
    if not to then return nil, why end
    url = to
  end
  return nil, words(plan.method, url, "more than " .. MAX_HOPS .. " redirects")
end

local function ask(self, method, address, options, stream)
  local plan, why = request.plan(method, address, options, stream)
  if not plan then return nil, why end
  local deadline = host.time.now() + plan.timeout
  return retry.run(plan, deadline, function(again) return try(self, again, deadline, stream) end)
end

-- Parses the `net` grants of a script, once per file. The loader warns about texts that grant nothing.
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
    local rest = copied(options)
    local method, url = rest.method or "GET", rest.url
    rest.method, rest.url = nil, nil
    return ask(self, method, url, rest)
  end
  function library.stream(url, options)
    local method, rest = "GET", copied(options)
    if type(rest) == "table" and rest.method then method, rest.method = rest.method, nil end
    return ask(self, method, url, rest, true)
  end
  return library
end

return http
