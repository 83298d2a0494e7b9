--- Notify subscribers that the watched resource has changed.
return function()
  resource_updated "test://watched-resource"
  return "Its followers are told."
end
