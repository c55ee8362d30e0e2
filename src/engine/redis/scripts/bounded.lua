-- An amount that fits an answer: sums of several machines may not.
local function bounded(amount)
  return max(-AMOUNT_MAX, min(amount, AMOUNT_MAX))
end
