-- Exact arithmetic. The numbers of Lua are doubles: integers are exact up to 2^53, and the quotient
-- of two of them is rounded by less than its distance to the next integer above.

-- floor(amount * part / whole), exact for integers with 0 <= part <= whole < 2^42. A product above
-- 2^53 is divided in steps of 10 bits of the part: each dividend is below 2^53.
local function share(amount, part, whole)
  if amount <= 0 then return 0 end
  amount = min(amount, AMOUNT_MAX)
  local product = amount * part
  if product <= AMOUNT_MAX then return floor(product / whole) end
  local quotient = floor(amount / whole)
  local rest = amount - quotient * whole
  local sum, remainder = 0, 0
  for bits = 40, 0, -10 do
    local dividend = remainder * 1024 + rest * (floor(part / 2 ^ bits) % 1024)
    local step = floor(dividend / whole)
    sum, remainder = sum * 1024 + step, dividend - step * whole
  end
  return quotient * part + sum
end
