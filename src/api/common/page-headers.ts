/** The headers of the pages of the documentation, besides `Content-Type` and `ETag`. */

/** The pages run no script, and load their own style and icon only. */
const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "style-src 'self'",
  "img-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');

export const PAGE_HEADERS = {
  // A browser asks again each time, and gets a 304 while the page is the same.
  'Cache-Control': 'no-cache',
  'Content-Security-Policy': CONTENT_SECURITY_POLICY,
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Referrer-Policy': 'no-referrer',
  // They show the address by which the client reaches the server.
  Vary: 'Host',
  'X-Content-Type-Options': 'nosniff',
} as const;
