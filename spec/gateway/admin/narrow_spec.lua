-- The dashboard on phones, in Debian's chromium: no page is wider than the screen, and no table than its container,
-- with long names and with nothing.
-- Without chromium nothing is tested, and the spec says so.
local certificates = require "spec.helpers.certificates"
local cjson = require "cjson.safe"
local gateway = require "spec.helpers.gateway"
local node = require "spec.helpers.node"
local stub = require "spec.helpers.stub"
local task_client = require "spec.helpers.task_client"
local upstream = require "spec.helpers.upstream"
local uv = require "luv"

local token = ("o"):rep(32)
local chromium = uv.fs_stat "/usr/bin/chromium" and "/usr/bin/chromium"
local LONG <const> = "release_reservations_of_customers_whose_orders_were_cancelled_before_shipping_v2"
local ADMIN <const> = { listen = "127.0.0.1:0", tokens = { operate = { ["deploy-bot-of-the-platform-team"] = token } } }
local HOST <const> = "gateway.warehouse-management.northern-region.example.com"
local FOLDER <const> = "department_of_logistics/warehouse_management_of_the_northern_region/"

local function walk(g, state)
  local code, out, err = gateway.run_program(node.path, {
    "spec/clients/narrow.mjs", chromium, "http://127.0.0.1:" .. g.admin_port, token, g.url, g.dir .. "/browser", "build/screens", state, g.dir .. "/scripts",
  }, { seconds = 900 })
  local found = assert(cjson.decode(out), out .. err)
  assert.is_nil(found.error, tostring(found.error) .. "\n" .. tostring(found.text))
  assert.equal(0, code)
  for _, what in ipairs { "wide", "console", "violations", "unnamed", "axe" } do assert.same({}, found[what], what) end
  return found
end

describe("the dashboard on a phone", function()
  it("has pages as wide as the screen, when there is nothing, when a token is wanted, and when the gateway does not answer", function()
    if not chromium then
      pending "there is no chromium: apt-get install chromium"
      return
    end
    local g <close> = gateway.start { config = { admin = ADMIN } }
    walk(g, "empty")
  end)

  it("has pages as wide as the screen, with long names, addresses, texts and errors", function()
    if not chromium then
      pending "there is no chromium: apt-get install chromium"
      return
    end
    local u <close> = upstream.start { revision = "2025-11-25" }
    local made = certificates.make {
      subject = "/O=Department of Logistics and Warehouse Management/CN=" .. HOST, sans = ("IP:127.0.0.1,DNS:localhost,DNS:%s,DNS:*.%s"):format(HOST, HOST),
    }
    local down <close> = stub.start(function(_, reply) reply:send(503) end)
    local g <close> = upstream.gateway({ ["inventory-of-the-northern-region"] = u, ["purchase-orders-of-last-year"] = { url = down.url .. "/mcp" } }, {
      files = { ["certificates/" .. HOST .. ".pem"] = made.certificate, ["certificates/key.pem"] = made.key },
      config = {
        listen = { "127.0.0.1:0", { address = "127.0.0.1:0", tls = { certificate = "certificates/" .. HOST .. ".pem", key = "certificates/key.pem" } } },
        admin = ADMIN, server = { instructions = ("Ask before you release reservations: %s. "):format(LONG):rep(4) },
        scripts = { grants = { ["tools/"] = { net = { HOST .. ":443", "login.example.com:443" } } } },
      },
      scripts = {
        ["auth/main.lua"] = [[return auth { function()
          return { id = "user:service-account-7b0b2a38-93bd-4b84-a6b1-cbf1d4d62a3f@login.warehouse-management.example.com" } end }]],
        ["tools/" .. LONG .. ".lua"] = [[return tool {
          "Releases the reservations of all customers whose orders were cancelled before they were shipped, and says how many there were.",
          title = "Release reservations of cancelled orders", input = {
            reference_number_of_the_customer_in_the_warehouse = t.string {
              description = "As in https://wiki.example.com/warehouse/reference-numbers-of-customers-and-their-meaning" },
            count = t.optional(t.integer) }, function(_, call) call:progress(1, 2, "half of it") sleep(300) end }]],
        ["tools/fails.lua"] = [[return tool { "Fails.", function()
          return nil, "there is no https://api.warehouse-management.northern-region.example.com/v2/customers/4711/orders/815/reservations" end }]],
        ["tools/hot.lua"] = ([[local hot = require %q
          return tool { "Is hot.", input = { number_of_rounds_of_the_outer_loop = t.integer },
            function(args) return hot(args.number_of_rounds_of_the_outer_loop) end }]])
          :format((FOLDER .. "sums_of_all_reservations"):gsub("/", ".")),
        ["tools/later_" .. LONG .. ".lua"] = 'return tool { "Runs as a task.", task = "required", function() sleep(300) end }',
        ["lib/" .. FOLDER .. "sums_of_all_reservations.lua"] = "return function(n) local x = 0\nfor i = 1, n do x = x + i end\nreturn x end",
        ["resources/order.lua"] = [[return resource { "An order with all its reservations, as it was when it was placed.",
          uri = "orders://warehouse-management.northern-region.example.com/customers/{customer}/orders/{order}/reservations/{reservation}",
          function(vars) return vars.order end }]],
        ["prompts/summarize_the_correspondence_with_a_customer_of_the_last_ninety_days.lua"] = [[return prompt { "Summarizes the correspondence.",
          args = { reference_number_of_the_customer_in_the_warehouse = t.string }, function() return "Do." end }]],
        ["jobs/nightly_reconciliation_of_reservations_and_shipments.lua"] = [[return job { "Reconciles.", every = 0.5, function()
          error "the-service-of-reservations.warehouse-management.example.com has refused the request" end }]],
      },
    })
    local client_info = { client_info = { name = "client_for_the_" .. LONG, version = "2026.11.23-nightly+4711" } }
    local listener <close> = g:client("2025-11-25", client_info)
    listener:get_stream()
    listener:open("tools/call", { name = LONG, arguments = { reference_number_of_the_customer_in_the_warehouse = "x" }, _meta = { progressToken = 1 } })
    local c <close> = g:client("2026-07-28", { capabilities = task_client.CAN })
    task_client.result(g, c, "tools/call", { name = "later_" .. LONG, arguments = {} })
    local found = walk(g, "long")
    assert.same({ "table", "columnheader", "row", "rowheader", "cell" }, found.roles) -- a card is still a row of a table for a screen reader
    assert.matches("^\"Client \"", found.titled)
  end)
end)
