-- The browser that a person uses: a cookie of ours tells one from another, and a form belongs to the browser that it was
-- shown in.

local address = require "moonpool.sign_in.address"
local keys = require "moonpool.keys"
local records = require "moonpool.sign_in.records"
local sealed = require "moonpool.sign_in.sealed"

local browser = {}

local FORM_S <const> = 600
local MAX_COOKIES_BYTES <const> = 16384

-- The value of our cookie; nil if there is none, two of them, or one that is not ours.
local function cookie_of(request)
  local text, found = request.headers.cookie, nil
  if not text or #text > MAX_COOKIES_BYTES then return nil end
  for name, value in text:gmatch "([^%s=;,]+)=([^;,%s]*)" do
    if name == address.cookie then
      if found then return nil end
      found = value
    end
  end
  return found and sealed.open("browser", found) and found
end

--- The hash of the browser's cookie, and the headers that set one if it has none.
function browser.known(request)
  local value = cookie_of(request)
  if value then return records.hash(value), {} end
  value = sealed.make("browser", keys.base64url(keys.random(16)))
  return records.hash(value), { "set-cookie", address.cookie .. "=" .. value .. "; Path=/; HttpOnly; SameSite=Lax" .. (address.is_https and "; Secure" or "") }
end

--- A form's token: `content` sealed for this browser and this kind of form, for ten minutes.
function browser.form(kind, hash, content)
  return sealed.make("form", { kind, hash, os.time() + FORM_S, content, keys.base64url(keys.random(12)) })
end

--- The content of a form that this browser posts, and the form's id; nil: another browser's, too old, or not ours.
function browser.posted(kind, request, token)
  local value = cookie_of(request)
  local opened = value and sealed.open("form", token)
  if not opened or opened[1] ~= kind or opened[2] ~= records.hash(value) or opened[3] < os.time() then return nil end
  return opened[4], opened[5]
end

--- True if a page of ours posts: by Origin, or where a browser sends none, by Sec-Fetch-Site.
function browser.is_ours(request)
  local origin = request.headers.origin
  if origin then return origin == address.origin end
  return request.headers["sec-fetch-site"] == "same-origin"
end

return browser
