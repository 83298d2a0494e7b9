-- Pages of sign-in: static HTML without a script, from escaped values; and the headers of every page.

local characters = require "moonpool.runtime.characters"
local host = require "moonpool.host"
local address = require "moonpool.sign_in.address"

local html = {}

local STYLE <const> = [[:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;margin:0;background:Canvas;color:CanvasText}
main{max-width:26rem;margin:8vh auto;padding:0 1.2rem}h1{font-size:1.3rem}b{overflow-wrap:anywhere}
.warn{border-left:4px solid #d97706;padding:.2rem .8rem}.host{font-size:1.15rem}li{overflow-wrap:anywhere}
label{display:block;margin:.8rem 0}input{font:inherit;width:100%;box-sizing:border-box;padding:.5rem}
button{font:inherit;padding:.6rem 1.4rem;margin:.8rem .6rem 0 0;cursor:pointer}
.later{animation:later 1s}@keyframes later{0%,99%{pointer-events:none;opacity:.5}}]]

local POLICY <const> = "default-src 'none'; style-src 'sha256-" .. host.base64.encode(host.digest.sum("sha256", STYLE))
  .. "'; frame-ancestors 'none'; base-uri 'none'"

local entities = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;", ["'"] = "&#39;" }

--- The text for HTML. Characters that are not seen, or that change the direction of text, are named.
function html.escape(text) return (characters.shown(text):gsub("[&<>\"']", entities)) end

--- A page with this title and body, which is HTML.
function html.page(status, title, body, more)
  local headers = {
    "content-security-policy", POLICY, "x-frame-options", "DENY", "referrer-policy", "same-origin", "cache-control", "no-store",
    "x-content-type-options", "nosniff", table.unpack(more or {}),
  }
  local name = html.escape(title)
  return { status = status, type = "text/html; charset=utf-8", headers = headers,
    body = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>"
      .. name .. "</title><style>" .. STYLE .. "</style></head><body><main><h1>" .. name .. "</h1>" .. body .. "</main></body></html>" }
end

--- A page that says why nothing goes on. `back`: the host of the client, and its address.
function html.fault(status, text, back, event)
  local link = back and "<p><a rel=\"noreferrer\" href=\"" .. html.escape(back.url) .. "\">Back to " .. html.escape(back.host) .. "</a></p>" or ""
  local page = html.page(status, "This sign-in cannot go on", "<p>" .. html.escape(text) .. "</p>" .. link)
  page.event, page.reason = event and "sign-in refused" or nil, event and text or nil
  return page
end

--- Sends the browser on, after a POST too.
function html.go(url)
  return { status = 303, body = "", headers = { "location", url, "cache-control", "no-store", "referrer-policy", "no-referrer" } }
end

--- A form that posts to a path of ours. `fields` is HTML.
function html.form(path, token, fields)
  return "<form method=\"post\" action=\"" .. html.escape(address.path(path)) .. "\"><input type=\"hidden\" name=\"form\" value=\"" .. token .. "\">"
    .. fields .. "</form>"
end

return html
