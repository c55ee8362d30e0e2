/**
 * The view that the hash of the URL names: `#/overrides?namespace=a`. So links work, and so does
 * the history of the browser.
 */

import { useEffect, useState } from 'preact/hooks';

export interface Route {
  /** The first part of the path: the name of the view. */
  view: string;
  /** The second part, decoded; '' without one. */
  item: string;
  query: URLSearchParams;
}

function readRoute(): Route {
  const [path, query = ''] = location.hash.replace(/^#\/?/, '').split('?', 2);
  const [view, item = ''] = path.split('/', 2);
  return { view: view || 'overview', item: decode(item), query: new URLSearchParams(query) };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function useRoute(): Route {
  const [route, setRoute] = useState(readRoute);
  useEffect(() => {
    let { hash } = location;
    const update = () => {
      if (location.hash === '' || location.hash.startsWith('#/')) {
        hash = location.hash;
        setRoute(readRoute());
      } else {
        // A link to a part of the page, which the browser has followed. The view stays.
        history.replaceState(null, '', hash || '#/');
      }
    };
    addEventListener('hashchange', update);
    return () => removeEventListener('hashchange', update);
  }, []);
  return route;
}

/** The address of a view. */
export function linkTo(view: string, item = '', query: Record<string, string> = {}): string {
  const fields = new URLSearchParams(query).toString();
  const path = item === '' ? view : `${view}/${encodeURIComponent(item)}`;
  return `#/${path}${fields === '' ? '' : `?${fields}`}`;
}
