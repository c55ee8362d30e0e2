/**
 * The view that the hash of the URL names: `#/overrides?namespace=a`. So links work, and so does
 * the history of the browser.
 */

import { useLayoutEffect, useState } from 'preact/hooks';

export interface Route {
  /** The first part of the path: the name of the view. */
  view: string;
  /** The rest of the path, decoded; '' without one. */
  item: string;
  query: URLSearchParams;
}

function readRoute(): Route {
  const address = location.hash.replace(/^#\/?/, '');
  const [path] = address.split('?', 1);
  const [view] = path.split('/', 1);
  return {
    view: view || 'overview',
    item: decode(path.slice(view.length + 1)),
    query: new URLSearchParams(address.slice(path.length + 1)),
  };
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
  // At once: an effect that runs after the page is painted would miss a change before that.
  useLayoutEffect(() => {
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

/** Goes to an address. The view that it names is rendered in a later turn. */
export function navigate(address: string): void {
  location.hash = address;
}

/**
 * State of a view that belongs to an address: at every other address it has its initial value. So
 * no view shows what was entered, answered or failed at another address.
 * @returns the value at `address`, and what sets it, at that address or at another one
 */
export function useStateAt<T>(
  address: string,
  initial: T,
): [value: T, set: (value: T, at?: string) => void] {
  const [state, setState] = useState({ at: address, value: initial });
  const set = (value: T, at = address) => setState({ at, value });
  return [state.at === address ? state.value : initial, set];
}

/** The address of a view. */
export function linkTo(view: string, item = '', query: Record<string, string> = {}): string {
  const fields = new URLSearchParams(query).toString();
  const path = item === '' ? view : `${view}/${encodeURIComponent(item)}`;
  return `#/${path}${fields === '' ? '' : `?${fields}`}`;
}

/** The address of the same view, with other values in its question. */
export function linkWith({ view, item, query }: Route, changes: Record<string, string>): string {
  const fields = { ...Object.fromEntries(query), ...changes };
  const given = Object.entries(fields).filter(([, value]) => value !== '');
  return linkTo(view, item, Object.fromEntries(given));
}
