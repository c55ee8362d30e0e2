-- Exact arithmetic of GCRA, as in `share.lua`.

-- a * b / divisor as two parts of the quotient and the remainder, for integers from 0 and a divisor
-- below 2^42. The first part is exact up to 2^53.
local function divide(a, b, divisor)
  local whole = floor(a / divisor)
  local rest = a - whole * divisor
  local sum, remainder = 0, 0
  for bits = 50, 0, -10 do
    local dividend = remainder * 1024 + rest * (floor(b / 2 ^ bits) % 1024)
    local step = floor(dividend / divisor)
    sum, remainder = sum * 1024 + step, dividend - step * divisor
  end
  return whole * b, sum, remainder
end

-- Returns ceil((a * b - c) / divisor), and how much it is above the quotient, times the divisor.
-- All are integers from 0. Where the quotient is not exact, it is too large.
local function ceiling(a, b, c, divisor)
  local large, small, remainder = 0, 0, a * b
  if remainder + c > AMOUNT_MAX then
    if divisor >= 2 ^ 42 then return math.ceil(remainder / divisor * (1 + 2 ^ -50)) + 1, 0 end
    large, small, remainder = divide(a, b, divisor)
    if large >= AMOUNT_MAX then return max(large, AMOUNT_MAX + 1), 0 end
  end
  local last = floor((remainder - c) / divisor)
  local over = remainder - c - last * divisor
  if over == 0 then return large + (small + last), 0 end
  return large + (small + last + 1), divisor - over
end

-- Returns floor((a * b + c) / divisor), and the remainder. Where not exact, it is too small.
local function floorOf(a, b, c, divisor)
  local large, small, remainder = 0, 0, a * b
  if remainder + c > AMOUNT_MAX then
    if divisor >= 2 ^ 42 then
      return max(0, floor(remainder / divisor * (1 - 2 ^ -50)) - 1), 0
    end
    large, small, remainder = divide(a, b, divisor)
    if large >= AMOUNT_MAX then return AMOUNT_MAX, 0 end
  end
  local last = floor((remainder + c) / divisor)
  return large + (small + last), remainder + c - last * divisor
end
