/** The frame of every page of the reference: head, header, navigation and footer. */

import { VERSION } from '../../../src/core/version.ts';
import { type Html, html } from './html.ts';

interface PageParts {
  title: string;
  description: string;
  /** From the page to `/docs`, as a relative address: `/docs` may be below a path of a proxy. */
  reference: string;
  /** From the page to the folder of all other pages. */
  folder: string;
  /** From the page to the OpenAPI document. */
  openApi: string;
  navigation: Html;
  main: Html;
  /** The page has one column of text, which has a maximum width. */
  isNarrow?: boolean;
}

/** The whole text of a page. */
export function pageHtml(parts: PageParts): string {
  const { title, description, reference, folder, openApi, navigation, main, isNarrow } = parts;
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>${title}</title>
<meta name="description" content="${description}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="${folder}icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="${folder}style.css">
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<header class="top">
<a class="brand" href="${reference}"><img src="${folder}icon.svg" alt="" width="24" height="24"
> weir <span>${VERSION}</span></a>
<ul>
<li><a href="${reference}#operations">Operations</a></li>
<li><a href="${reference}#error-codes">Errors</a></li>
<li><a href="${openApi}">OpenAPI</a></li>
</ul>
</header>
<div class="frame">
<nav class="contents" aria-label="Contents">
${navigation}
</nav>
<main id="content"${isNarrow && html` class="narrow"`} tabindex="-1">
${main}
</main>
</div>
<footer>weir ${VERSION}. For programs: <a href="${openApi}">openapi.json</a>.</footer>
</body>
</html>
`.text;
}

interface NavigationGroup {
  title: string;
  links: readonly { href: string; text: string | Html; isCurrent?: boolean }[];
}

export function navigationGroups(groups: readonly NavigationGroup[]): Html {
  return html`${groups.map(({ title, links }) => {
    const items = links.map(({ href, text, isCurrent = false }) => {
      const current = isCurrent && html` aria-current="page"`;
      return html`<li><a href="${href}"${current}>${text}</a></li>\n`;
    });
    return html`<p>${title}</p>\n<ul>\n${items}</ul>\n`;
  })}`;
}
