-- Cells of the matrix that are not as its rule says, with the reason. `client`, `form`: patterns of labels such as
-- "2025-11-25 stdio", and of names of forms.
local differences = { all = {} }

function differences.find(feature, client, form)
  for _, row in ipairs(differences.all) do
    if row.feature == feature and client:find(row.client) and form:find(row.form) then return row end
  end
end

return differences
