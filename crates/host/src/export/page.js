'use strict';
(() => {
  const of = (id) => document.getElementById(id);
  const articles = Array.from(document.querySelectorAll('main article'));
  const find = of('find'), hits = of('hits'), fold = of('fold'), tree = of('tree');
  // What is marked in the text, and opened by a search, at most.
  const MOST = 300;
  let shown = [], opened = [], at = -1, round = 0, timer = 0;

  // Work in slices, so that typing and scrolling go on meanwhile; until `stopped` says so.
  const slices = (count, one, done, stopped) => {
    let next = 0;
    const slice = () => {
      if (stopped()) return;
      const until = performance.now() + 25;
      while (next < count && performance.now() < until) one(next++);
      if (next < count) setTimeout(slice); else done();
    };
    slice();
  };
  const look = (one, done) => {
    const mine = ++round;
    slices(articles.length, (n) => one(articles[n]), done, () => mine !== round);
  };

  const line = (article) => {
    const kinds = article.classList, label = article.dataset.label;
    const begins = kinds.contains('branch');
    if (!begins && !label && !kinds.contains('user') && !kinds.contains('compaction') && !kinds.contains('head')) return;
    const link = document.createElement('a');
    link.href = '#' + article.id;
    link.style.paddingLeft = 0.3 + 0.7 * Math.min(article.dataset.level || 0, 8) + 'rem';
    if (begins) link.className = 'branch';
    if (label) {
      const mark = document.createElement('b');
      mark.textContent = label + ' ';
      link.append(mark);
    }
    const first = article.querySelector('p:not(.turn)') || article.firstElementChild;
    link.append(first.textContent.slice(0, 90));
    tree.append(link);
  };

  const clear = () => {
    round++;
    for (const part of opened) part.open = false;
    if (window.CSS && CSS.highlights) CSS.highlights.delete('found');
    shown = []; opened = []; at = -1;
  };

  // Marks each place of the word in one entry, and opens what it is folded in.
  const mark = (article, word, ranges) => {
    const walker = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
    for (let node; (node = walker.nextNode()) && ranges.length < MOST;) {
      const text = node.data.toLowerCase();
      // Where lower case is longer, places would be wrong.
      if (text.length !== node.data.length) continue;
      for (let from = 0; (from = text.indexOf(word, from)) >= 0 && ranges.length < MOST; from += word.length) {
        const range = new Range();
        range.setStart(node, from);
        range.setEnd(node, from + word.length);
        ranges.push(range);
        const part = node.parentElement.closest('details');
        if (part && !part.open && !node.parentElement.closest('summary')) { part.open = true; opened.push(part); }
      }
    }
  };

  const search = () => {
    const word = find.value.trim().toLowerCase();
    clear();
    if (!word) {
      hits.textContent = '';
      look((article) => { if (article.hidden) article.hidden = false; }, () => {});
      return;
    }
    hits.textContent = '…';
    const ranges = [];
    look((article) => {
      const has = article.textContent.toLowerCase().includes(word);
      if (article.hidden === has) article.hidden = !has;
      if (has) {
        shown.push(article);
        if (ranges.length < MOST) mark(article, word, ranges);
      }
    }, () => {
      hits.textContent = shown.length + ' of ' + articles.length + ' entries';
      if (ranges.length && window.CSS && CSS.highlights) CSS.highlights.set('found', new Highlight(...ranges));
    });
  };

  find.addEventListener('input', () => { clearTimeout(timer); timer = setTimeout(search, 120); });
  find.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') { find.value = ''; search(); }
    if (event.key !== 'Enter' || !shown.length) return;
    at = (at + (event.shiftKey ? shown.length - 1 : 1)) % shown.length;
    shown[at].scrollIntoView();
  });
  document.addEventListener('keydown', (event) => {
    if (event.key === '/' && document.activeElement !== find) { event.preventDefault(); find.focus(); }
  });
  fold.addEventListener('click', () => {
    const open = fold.dataset.open !== 'yes';
    fold.dataset.open = open ? 'yes' : 'no';
    fold.textContent = open ? 'Fold all' : 'Unfold all';
    for (const part of document.querySelectorAll('main details')) part.open = open;
  });
  // A place that was asked for may stand in an entry that a search hides.
  addEventListener('hashchange', () => {
    const wanted = of(location.hash.slice(1));
    if (wanted && wanted.hidden) { find.value = ''; search(); wanted.hidden = false; wanted.scrollIntoView(); }
  });
  slices(articles.length, (n) => line(articles[n]),
    () => { document.documentElement.dataset.ready = 'yes'; }, () => false);
})();
