/** The hash slots of a Redis cluster. */

export const CLUSTER_SLOTS = 16_384;
/** CRC16 of the XMODEM protocol. */
const POLYNOMIAL = 0x1021;

/** The slot of a key: that of the text in its first braces, if there is one. */
export function slotOfKey(key: string): number {
  const open = key.indexOf('{');
  const close = open < 0 ? -1 : key.indexOf('}', open + 1);
  const hashed = close > open + 1 ? key.slice(open + 1, close) : key;
  let crc = 0;
  for (const byte of Buffer.from(hashed)) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit++) {
      crc = (crc & 0x8000) === 0 ? crc << 1 : (crc << 1) ^ POLYNOMIAL;
    }
    crc &= 0xffff;
  }
  return crc % CLUSTER_SLOTS;
}
