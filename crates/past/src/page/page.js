'use strict';
(() => {
  const of = (id) => document.getElementById(id);
  const read = (id) => JSON.parse(of('data-' + id).textContent);
  const { ids, starts, widths, levels, parents, flags, texts } = read('chunks');
  const rest = read('rest');
  const count = levels.length, MOST = 200;
  let named = null;
  // Read when somebody looks at the first one: most of a large page is in it.
  const sources = () => (named = named || read('sources'));
  for (let at = 1; at < count; at++) starts[at] += starts[at - 1];
  const id = (at) => ids.slice(at * 12, at * 12 + 12);
  const time = (at) => { const t = new Date(at); return isNaN(t) ? String(at) : t.toISOString().replace('.000Z', 'Z'); };
  const key = (at) => time(starts[at]) + '..' + time(starts[at] + widths[at]);
  const top = levels.reduce((most, level) => Math.max(most, level), 0);

  // Elements with text alone: nothing that a summary says becomes markup.
  const make = (name, text, kind) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (kind) made.className = kind;
    return made;
  };
  const link = (at, text) => {
    const made = make('button', text === undefined ? key(at) : text, 'link');
    made.type = 'button';
    made.dataset.chunk = at;
    made.addEventListener('click', () => show(at));
    return made;
  };
  const list = (place, all, one) => {
    const ul = make('ul');
    let next = 0;
    const more = make('button');
    more.type = 'button';
    const fill = () => {
      for (const until = Math.min(all.length, next + MOST); next < until; next++) ul.append(one(all[next]));
      more.textContent = (all.length - next) + ' more';
      more.hidden = next >= all.length;
    };
    more.addEventListener('click', fill);
    fill();
    place.append(ul, more);
  };

  const verdicts = new Map();
  for (const [at, kind, why, level] of rest.cover.decisions) if (at !== null) verdicts.set(at, [kind, why, level]);
  const counts = (pairs) => new Map(pairs);
  const late = counts(rest.late), overlap = counts(rest.overlap), missing = counts(rest.missing);

  // The children of each chunk, in order of time.
  const first = new Int32Array(count).fill(-1), next = new Int32Array(count).fill(-1), roots = [];
  for (let at = count - 1; at >= 0; at--) {
    const parent = parents[at];
    if (parent < 0) { roots.push(at); continue; }
    next[at] = first[parent];
    first[parent] = at;
  }
  roots.reverse();
  const children = (at) => { const all = []; for (let one = first[at]; one >= 0; one = next[one]) all.push(one); return all; };

  let current = -1;
  const show = (at) => {
    current = at;
    const place = of('chunk');
    place.replaceChildren(make('h2', key(at)));
    const facts = make('dl');
    const fact = (what, is, kind) => { facts.append(make('dt', what), make('dd', is, kind)); };
    fact('id', id(at));
    fact('level', levels[at]);
    fact('made', flags[at] & 2 ? 'by a model' : flags[at] & 4 ? 'by a person' : 'of sentences of its sources');
    if (flags[at] & 1) fact('state', 'reviewed');
    if (flags[at] & 32) fact('author', 'untrusted');
    if (flags[at] & 8) fact('grounding', 'says what its sources do not; kept out of covers', 'bad');
    const verdict = verdicts.get(at);
    if (verdict) fact('cover', verdict[0] + ': ' + verdict[1], verdict[0]);
    if (overlap.get(at)) fact('overlap', overlap.get(at) + ' said at its time, and no source');
    if (late.get(at)) fact('late', late.get(at) + ' came after it was made', 'bad');
    if (missing.get(at)) fact('missing', missing.get(at) + ' sources are not there any more', 'bad');
    place.append(facts, make('pre', texts[at]));
    if (flags[at] & 16) place.append(make('p', 'Shortened: there are too many for one page.', 'dim'));
    if (parents[at] >= 0) { const above = make('p', 'In: '); above.append(link(parents[at])); place.append(above); }
    const below = children(at);
    if (below.length) { place.append(make('h2', 'Contains')); list(place, below, (one) => { const li = make('li'); li.append(link(one)); return li; }); }
    const all = sources().ids[at] || '';
    if (all) {
      place.append(make('h2', 'Sources'));
      const nodes = [];
      for (let from = 0; from < all.length; from += 12) nodes.push(all.slice(from, from + 12));
      list(place, nodes, (node) => {
        const said = sources().said[node], li = make('li', undefined, 'source');
        li.append(make('code', node));
        if (said) {
          li.append(make('span', ' ' + ['person', 'model', 'tool'][said[0]] + (said[1] ? ', ' + time(said[1]) : ''), 'dim'), make('p', said[2]));
        } else li.append(make('span', ' not in this page', 'dim'));
        return li;
      });
    }
    for (const one of document.querySelectorAll('[aria-current]')) one.removeAttribute('aria-current');
    for (const one of document.querySelectorAll('.link[data-chunk="' + at + '"]')) one.setAttribute('aria-current', 'true');
    draw();
  };

  const branch = (at) => {
    const li = make('li');
    if (first[at] >= 0) {
      const fold = make('button', '+', 'fold');
      fold.type = 'button';
      fold.setAttribute('aria-expanded', 'false');
      fold.addEventListener('click', () => {
        const open = fold.getAttribute('aria-expanded') === 'false';
        fold.setAttribute('aria-expanded', String(open));
        fold.textContent = open ? '−' : '+';
        if (open) list(li, children(at), branch); else while (li.children.length > 2) li.lastChild.remove();
      });
      li.append(fold);
    }
    li.append(link(at));
    return li;
  };
  const forest = () => { of('tree').replaceChildren(); list(of('tree'), roots, branch); of('hits').textContent = ''; };

  const find = of('find');
  let timer = 0;
  const search = () => {
    const word = find.value.trim().toLowerCase();
    if (!word) return forest();
    const found = [];
    for (let at = 0; at < count; at++) if (texts[at].toLowerCase().includes(word) || id(at).startsWith(word)) found.push(at);
    of('tree').replaceChildren();
    list(of('tree'), found, (at) => { const li = make('li'); li.append(link(at), make('div', texts[at].slice(0, 120), 'dim')); return li; });
    of('hits').textContent = found.length + ' of ' + count + ' chunks';
  };
  find.addEventListener('input', () => { clearTimeout(timer); timer = setTimeout(search, 120); });

  // The timeline: a lane for each level, the coarsest on top.
  const canvas = of('lanes'), pen = canvas.getContext('2d');
  let from = 0, to = 1, from0 = 0, to0 = 1;
  if (count) {
    from0 = starts[0];
    to0 = starts.reduce((end, start, at) => Math.max(end, start + widths[at]), from0 + 1);
  }
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue('--' + name);
  const lane = () => canvas.height / (top + 1);
  const draw = () => {
    const scale = window.devicePixelRatio || 1;
    canvas.width = Math.max(1, Math.round(canvas.clientWidth * scale));
    canvas.height = Math.max(1, Math.round(canvas.clientHeight * scale));
    const high = lane(), wide = canvas.width / (to - from), last = new Float64Array(top + 1).fill(-1);
    const colours = { chosen: colour('chosen'), split: colour('split'), dropped: colour('dropped'), none: colour('dim') };
    for (let at = 0; at < count; at++) {
      if (starts[at] > to || starts[at] + widths[at] < from) continue;
      const x = Math.max(0, (starts[at] - from) * wide), end = Math.min(canvas.width, (starts[at] + widths[at] - from) * wide);
      const verdict = verdicts.get(at), level = levels[at];
      // What no pixel is left for is not drawn.
      if (end < last[level] + 1 && !verdict && at !== current) continue;
      last[level] = Math.max(end, x + 1);
      pen.fillStyle = at === current ? colour('mark') : colours[verdict ? verdict[0] : 'none'];
      pen.globalAlpha = verdict || at === current ? 1 : 0.5;
      pen.fillRect(x, (top - level) * high + 1, Math.max(1, end - x - 1), Math.max(1, high - 2));
    }
    pen.globalAlpha = 1;
    of('window').textContent = count ? time(from) + ' to ' + time(to) : '';
  };
  const zoom = (factor, about) => {
    const middle = about === undefined ? (from + to) / 2 : about;
    const width = Math.min(to0 - from0, Math.max(1000, (to - from) * factor));
    from = Math.max(from0, Math.min(to0 - width, middle - (middle - from) / (to - from) * width));
    to = from + width;
    draw();
  };
  const move = (share) => { const by = (to - from) * share; const d = Math.max(from0 - from, Math.min(to0 - to, by)); from += d; to += d; draw(); };
  of('in').addEventListener('click', () => zoom(0.5));
  of('out').addEventListener('click', () => zoom(2));
  of('earlier').addEventListener('click', () => move(-0.5));
  of('later').addEventListener('click', () => move(0.5));
  of('whole').addEventListener('click', () => { from = from0; to = to0; draw(); });
  const pick = (event) => {
    const box = canvas.getBoundingClientRect();
    return [from + (event.clientX - box.left) / box.width * (to - from), top - Math.floor((event.clientY - box.top) / box.height * (top + 1))];
  };
  canvas.addEventListener('wheel', (event) => { event.preventDefault(); zoom(event.deltaY < 0 ? 0.8 : 1.25, pick(event)[0]); }, { passive: false });
  canvas.addEventListener('click', (event) => {
    const [at, level] = pick(event), near = (to - from) / 200;
    let best = -1, far = Infinity;
    for (let one = 0; one < count; one++) {
      if (levels[one] !== level) continue;
      const off = Math.max(starts[one] - at, at - starts[one] - widths[one], 0);
      if (off < far) { far = off; best = one; }
    }
    if (best >= 0 && far <= near) show(best);
  });
  addEventListener('resize', draw);

  const cover = () => {
    const place = of('cover'), { budget, cost, boundary, about, decisions, decided, shortfall, leftOut } = rest.cover;
    place.append(make('h2', 'Cover'));
    place.append(make('p', cost + ' of ' + budget + ' tokens' + (boundary === null ? '' : ', of what ended until ' + time(boundary)) +
      (about ? ', about: ' + about : ''), 'dim'));
    for (const kind of ['chosen', 'split', 'dropped']) {
      const some = decisions.filter((one) => one[1] === kind && one[0] !== null);
      if (!some.length) continue;
      place.append(make('h2', some.length + ' ' + kind, kind));
      list(place, some, ([at, , why]) => { const li = make('li'); li.append(link(at), make('span', ' ' + why, 'dim')); return li; });
    }
    if (decided > decisions.length) place.append(make('p', (decided - decisions.length) + ' more decisions are not in this page.', 'dim'));
    if (shortfall) place.append(make('p', 'Not all fits: ' + shortfall.shortfall.replace(/_/g, ' ') + (shortfall.chunks ? ', ' + shortfall.chunks + ' chunks' : ''), 'dim'));
    if (leftOut.length) {
      place.append(make('h2', 'Left out'));
      list(place, leftOut, ([start, end, chunks]) => make('li', time(start) + '..' + time(end) + ': ' + chunks + ' chunks'));
    }
  };
  // What sessions were really given, beside what the rules give from the chunks of now.
  const given = () => {
    const place = of('given'), { list: all, chosen, request, leftOut, elsewhere } = rest.given;
    place.append(make('h2', 'Served to sessions'));
    const head = make('p', '', 'dim'), body = make('div');
    body.id = 'served';
    place.append(head, body);
    // What is chosen is listed first, so where something else is listed it has all that is chosen.
    const { decisions: told, decided } = rest.cover, hasAll = told.length === decided || told.some((one) => one[1] !== 'chosen');
    const mark = (at) => {
      const verdict = verdicts.get(at);
      if (verdict && verdict[0] === 'chosen') return 'also in the cover above';
      return hasAll ? 'not in the cover above' : 'not known whether it is in the cover above';
    };
    const open = (cover, title) => {
      head.textContent = title + ': ' + cover.members.length + ' chunks, ' + cover.cost + (cover.budget === null ? '' : ' of ' + cover.budget) +
        ' tokens, of what ended until ' + time(cover.until) + (cover.next === null ? '' : '; from the next run on another cover, of ' + cover.next + ' chunks');
      body.replaceChildren();
      const why = new Map((cover.decisions || []).filter((one) => one[0] !== null).map((one) => [one[0], one]));
      list(body, cover.members, (one) => {
        const li = make('li');
        if (typeof one === 'number') {
          const plan = why.get(one);
          li.append(link(one), make('span', ' ' + id(one) + (plan ? ' ' + plan[2] : '') + ', ' + mark(one), 'dim'));
        } else li.append(make('span', one[1] + ' ' + one[0] + ': not among the chunks of this page', 'dim'));
        return li;
      });
      if (cover.leftOut) body.append(make('p', 'Nothing was shown of ' + cover.leftOut + '.', 'dim'));
      if (!cover.decisions) {
        body.append(make('p', 'Why these were chosen is not known: what a search found for the question at that time is not kept, the chunks are others by now, or the record does not say its budget.', 'dim'));
        return;
      }
      for (const kind of ['split', 'dropped']) {
        const some = cover.decisions.filter((one) => one[1] === kind && one[0] !== null);
        if (!some.length) continue;
        body.append(make('h2', some.length + ' ' + kind, kind));
        list(body, some, ([at, , reason]) => { const li = make('li'); li.append(link(at), make('span', ' ' + reason, 'dim')); return li; });
      }
    };
    const title = (cover) => 'From ' + time(cover.at) + ' in ' + cover.session + ', ' + cover.requests + ' requests';
    if (request) {
      if (request.cover) open(request.cover, 'In the request of ' + request.node);
      else head.textContent = 'The request of ' + request.node + ' had no past before it.';
    } else if (chosen !== null) open(all[chosen], title(all[chosen]));
    else head.textContent = all.length ? 'None until then.' : 'None.';
    list(place, [...all].reverse(), (cover) => {
      const li = make('li'), made = make('button', time(cover.at), 'link');
      made.type = 'button';
      made.addEventListener('click', () => open(cover, title(cover)));
      li.append(made, make('span', ' ' + cover.session + ', ' + cover.requests + ' requests from ' + cover.first + ' to ' + cover.last + ', ' + cover.members.length + ' chunks', 'dim'));
      return li;
    });
    if (leftOut) place.append(make('p', leftOut + ' older ones are not in this page.', 'dim'));
    if (elsewhere) place.append(make('p', elsewhere + ' covers of another past are not in this page.', 'dim'));
  };
  const evidence = () => {
    const place = of('evidence');
    place.append(make('h2', 'Evidence late or missing'));
    const some = [...new Set([...late.keys(), ...missing.keys()])].sort((a, b) => a - b);
    list(place, some, (at) => {
      const li = make('li');
      li.append(link(at), make('span', ' ' + (late.get(at) || 0) + ' late, ' + (missing.get(at) || 0) + ' missing', 'dim'));
      return li;
    });
    if (!some.length) place.append(make('p', 'None.', 'dim'));
    if (rest.gapCount) {
      place.append(make('h2', rest.gapCount + ' ranges without a summary'));
      list(place, rest.gaps, ([start, end, nodes, isLate]) => make('li', time(start) + '..' + time(end) + ': ' + nodes + ' nodes' + (isLate ? ', late' : '')));
    }
  };
  const proofs = () => {
    const place = of('proofs'), proof = rest.proof;
    place.append(make('h2', 'Proofs'));
    if (!proof) { place.append(make('p', 'None was made yet.', 'dim')); return; }
    const { structure, grounding, ablation } = proof;
    place.append(make('p', 'Made ' + time(proof.at), 'dim'));
    place.append(make('p', 'Structure: ' + structure.equal + ' of ' + structure.requests + ' requests equal what the graph gives; ' + structure.different.length + ' differ.', structure.different.length ? 'bad' : ''));
    list(place, structure.different, (one) => make('li', one.node.slice(0, 12) + ' differs at ' + one.at));
    list(place, Object.entries(structure.unchecked), ([why, n]) => make('li', n + ' not checked: ' + why, 'dim'));
    if (structure.skipped) place.append(make('p', structure.skipped + ' requests were not looked at.', 'dim'));
    place.append(make('p', 'Grounding: ' + grounding.chunks + ' chunks with ' + grounding.claims + ' claims; ' + grounding.ungrounded + ' say what their sources do not, ' + grounding.keptOut + ' are kept out of covers.', grounding.ungrounded ? 'bad' : ''));
    if (grounding.unchecked) place.append(make('p', grounding.unchecked + ' chunks were not checked, as a source or a child is not there.', 'dim'));
    if (!ablation) { place.append(make('p', 'Ablation: no questions were asked.', 'dim')); return; }
    const right = (name) => ablation.questions.filter((one) => one[name]).length;
    place.append(make('p', 'Ablation: ' + ablation.model + ' answers ' + right('with') + ' of ' + ablation.questions.length + ' questions with the cover, ' + right('without') + ' without it, ' + right('disturbed') + ' with a disturbed one.'));
    if (ablation.unasked) place.append(make('p', ablation.unasked + ' questions were not asked.', 'dim'));
    if (ablation.notKept) place.append(make('p', ablation.notKept + ' questions more were asked and are not kept.', 'dim'));
    const table = make('table'), head = make('tr');
    for (const name of ['question', 'with', 'without', 'disturbed', 'chunk removed', 'chunk disturbed']) head.append(make('th', name));
    table.append(head);
    const mark = (is) => is ? 'right' : 'wrong', other = (is) => is ? 'other answer' : 'same answer';
    for (const asked of ablation.questions.slice(0, MOST)) {
      const row = make('tr');
      row.append(make('td', asked.question), make('td', mark(asked.with)), make('td', mark(asked.without)), make('td', mark(asked.disturbed)));
      const cells = [make('td'), make('td')];
      for (const one of asked.chunks) {
        cells[0].append(make('div', one.chunk.slice(0, 12) + ': ' + other(one.changedRemoved)));
        cells[1].append(make('div', one.chunk.slice(0, 12) + ': ' + other(one.changedDisturbed)));
      }
      row.append(...cells);
      table.append(row);
    }
    place.append(table);
  };

  from = from0; to = to0;
  of('about').textContent = count + ' chunks on ' + (count ? top + 1 : 0) + ' levels; page of ' + time(rest.now) +
    (rest.shortened ? '; ' + rest.shortened + ' summaries are shortened' : '') + (rest.faults ? '; ' + rest.faults + ' chunks have a fault' : '');
  forest();
  cover();
  given();
  evidence();
  proofs();
  draw();
  document.documentElement.dataset.ready = 'yes';
})();
