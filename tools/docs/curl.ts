/** The request of an example as a curl command, without its body. */

import type { ExampleRequest } from './reference-model.ts';

/** @param flags of curl, as in `-i` @returns the lines of the command, to join by `\` */
export function curlLines({ url, headers }: ExampleRequest, flags: string): string[] {
  const options = Object.entries(headers).map(([name, value]) => {
    const quote = value.includes('$') ? '"' : "'";
    return `-H ${quote}${name}: ${value}${quote}`;
  });
  const target = /[^\w.:/%-]/.test(url) ? `'${url}'` : url;
  const words = ['curl', flags, target].filter((word) => word !== '');
  return [words.join(' '), ...options];
}

/** JSON for a quotation in apostrophes. An apostrophe ends the quotation, so it stands outside. */
export function quotable(json: string): string {
  return json.replaceAll("'", `'\\''`);
}

export function joinCurlLines(lines: readonly string[]): string {
  return lines.join(' \\\n  ');
}
