/** What servers answer that decide nothing: as long as an answer of weir. */

export const CONSTANT_RESPONSE =
  '{"success":true,"limit":1000000,"remaining":999999,"reset":1700000060000}';
