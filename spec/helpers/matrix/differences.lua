-- Cells of the matrix that are not as its rule says, with the reason: { feature =, client =, form =, why = }. `client`,
-- `form`: parts of labels such as "2025-11-25 stdio", and of names of forms; "" is each. A row whose cells do not all
-- differ fails.
local differences = { all = {} }

function differences.find(feature, client, form)
  for _, row in ipairs(differences.all) do
    if row.feature == feature and client:find(row.client, 1, true) and form:find(row.form, 1, true) then return row end
  end
end

return differences
