it("asks the cache first", function()
  fake.redis { ["GET square:12"] = "144" }
  assert.equal("144, from the cache", call("square", { n = 12 }).text)
end)

it("keeps what it has computed for a minute", function()
  fake.time(0)
  local sent = fake.redis { GET = false, SET = "OK" }
  assert.equal("9, computed", call("square", { n = 3 }).text)
  assert.same({ "SET", "square:3", "9", "PX", "60000" }, sent[2])
end)

it("works without the cache", function()
  fake.time(0)
  fake.redis {}
  assert.equal("9, computed", call("square", { n = 3 }).text)
end)
