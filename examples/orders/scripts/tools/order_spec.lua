it("takes from the stock and answers with the number of the order", function()
  local sent = fake.postgres { ["update stock"] = 1, ["insert into orders"] = { { id = 7 } } }
  assert.equal("order 7", call("order", { item = "tea", count = 2 }).text)
  assert.equal("tea", sent[2][1])
end)

it("takes no order that the stock has not", function()
  fake.postgres { ["update stock"] = 0 }
  assert.contains("not enough tea", select(2, call("order", { item = "tea", count = 2 })))
end)

it("lists orders", function()
  fake.postgres { ["select * from orders"] = { { id = 1, item = "tea", n = 2 } } }
  assert.equal("tea", call("orders", {}).structured.orders[1].item)
end)
