/** The response of servers that decide nothing: as long as a response of weir. */

export const CONSTANT_RESPONSE =
  '{"success":true,"limit":1000000,"remaining":999999,"reset":1700000060000}';
