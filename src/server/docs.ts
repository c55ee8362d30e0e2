/** The pages behind the `docs` link of every error, one for each code, served without a key. */

import { ERRORS, type ErrorCode } from '../core/errors.ts';

export const DOCS_PATH = '/docs/errors/';

export function docsPages(): { code: ErrorCode; html: string }[] {
  return (Object.keys(ERRORS) as ErrorCode[]).map((code) => {
    const { status, title, remedy } = ERRORS[code];
    const html =
      `<!doctype html><html lang="en"><meta charset="utf-8"><title>${code} - weir</title>` +
      `<h1>${code}</h1><p>HTTP ${status}. ${title}</p><p>${escapeHtml(remedy)}</p></html>\n`;
    return { code, html };
  });
}

function escapeHtml(text: string): string {
  return text.replace(/[<>&]/g, (character) => `&#${character.charCodeAt(0)};`);
}
