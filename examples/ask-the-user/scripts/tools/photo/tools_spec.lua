describe("photo_clear", function()
  before_each(function()
    assert(call("photo_add", { title = "Oslo", year = 1999 }))
    assert(call("photo_add", { title = "San Juan", year = 2021 }))
  end)

  it("deletes what the user agrees to", function()
    fake.answers { sure = { confirm = true } }
    assert.equal("1 deleted", call("photo_clear", { before = 2000 }).text)
  end)

  it("asks nothing when there are none", function()
    assert.equal("there are none", call("photo_clear", { before = 1900 }).text)
  end)

  it("leaves what the user wants to keep", function()
    fake.answers { sure = false }
    assert.same({ nil, "declined" }, { call("photo_clear", { before = 2000 }) })
    fake.answers { sure = { confirm = false } }
    assert.same({ nil, "left as they are" }, { call("photo_clear", { before = 2000 }) })
  end)
end)
