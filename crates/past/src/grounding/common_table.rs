//! Words that may begin a sentence without being a name.

/// Whether a word in small letters is an ordinary one: by the list, or by its ending.
pub(super) fn is_common(word: &str) -> bool {
    let is_listed = |word: &str| COMMON.split_ascii_whitespace().any(|common| common == word);
    if is_listed(word) {
        return true;
    }
    let stems =
        [("ies", "y"), ("es", ""), ("es", "e"), ("s", ""), ("d", ""), ("er", ""), ("er", "e"), ("n't", "")];
    let has_stem = stems.iter().any(|(ending, with)| {
        word.strip_suffix(ending).is_some_and(|stem| stem.len() > 2 && is_listed(&format!("{stem}{with}")))
    });
    has_stem || word.len() > 4 && ENDINGS.iter().any(|ending| word.ends_with(ending))
}

/// Endings that few names have.
const ENDINGS: [&str; 26] = [
    "ing", "ings", "ed", "tion", "tions", "sion", "sions", "ment", "ments", "ness", "ly", "ity", "ities",
    "able", "ible", "less", "ful", "ive", "ism", "ance", "ence", "ences", "ances", "ised", "ized", "ous",
];

/// The alphabet's order.
const COMMON: &str = "\
    a about above access according account accounts across action actions active actual actually add added adding \
    addition additional adds administration adult adults advice after afterwards again against age agenda agents \
    agreement ahead aim alert alerts alias all allow allows almost along already also alternative alternatives \
    although always among amount an analysis and animal animals annual another answer answers any anybody anyone \
    anything anyway apart app application applications approach approval apps area areas argument around array \
    article articles as aside ask asks assistant at attached attempt attempts attendance attention audience aunt \
    author authors automatic autumn available average avoid away baby back backend background backlog backup backups \
    bad balance band bank banks bar base based baseline basic batch batches battery be beach because become bed \
    before began begin beginning begins behaviour behind being below benchmark benchmarks beneath benefit beside \
    besides best better between beyond big bill bills binary birthday bit block blocks blog blood blue board boards \
    boat body book books boot boots both bottom box boxes boy boys brain branch branches bread break breakfast \
    breaks bridge brief bring broken brother browser browsers budget buffer bug bugs build builder building builds \
    bus business but button buttons buy by byte bytes cache caches cake calendar call caller callers calls camera \
    can candidate candidates capacity car card cards care careful case cases cash cat category cause causes central \
    certificate certificates change changes channel channels chapter charge charges chart check checks child \
    children choice choose church city class classes clean cleaner clear clearly client clients clock close closed \
    cloud club code coffee cold collection column columns combined come comes comment comments commit commits \
    committee common community companies company comparison compiler complete component components computer concern \
    concerns concert condition conditions conference config configuration conflict conflicts connection connections \
    consequently consumer consumers contact container containers content contents context continuous contract \
    contracts contrary contrast control convention cook cookie cookies cool copy core corner correct cost costs \
    could count country couple course court cover coverage crash crashes creation credit criterion critical cross \
    crowd current currently curriculum customer customers cut cuts cycle daily dance dark data database databases \
    date dates daughter day days deadline deal debug decision decisions deck deep default defaults delay delays \
    delivery demand demo department dependencies dependency deploy deploys depth desk despite detail details dev \
    developer developers device devices diagram diet difference different dinner direct direction director directory \
    disc discount discussion disk distance district do doc docs doctor document documentation documents does dog \
    domain done door double doubt down download downloads draft drafts drawing dream dress drink drive driver \
    drivers drop due duplicate duplicates duration during duty each earlier early earth east easy edge edit editor \
    edits effect effects effort eight eighteen eighty either eleven else elsewhere email emails employee employees \
    empty end endpoint endpoints energy engine engineer engineers engines english enough entire entries entry \
    environment episode equipment error errors especially estimate estimates even evening evenings event events \
    eventually ever every everybody everyone everything everywhere evidence exact exactly exam example examples \
    except exception exceptions exchange excluding exercise exit expert experts explicit export exports extension \
    extensions external extra eye eyes face fact factor factory facts failure failures fair faith fall false \
    families family fan far farm farmer fast faster father fault favourite feature features february feedback feel \
    fees few fewer field fields fifteen fifth fifty fight figure figures file files fill film films filter filters \
    final finally finance find finds fine fire first firstly fish fit five fix fixes flag flags flat flight flights \
    floor flow flower flowers folder folders follow follows food foot football for force forecast foreign forest \
    form format formats former formerly forms forty forward found four fourteen fourth frame framework free freedom \
    frequent fresh friend friends from front frontend full fully fun function functions fund funds further \
    furthermore future gain gains game games gap gaps garden gate general generally gift girl girls give gives glass \
    global go goal goals god gold good goods government grade grand grandfather grandmother graph graphics great \
    green grey grid ground group groups growth guard guest guests guide guitar half hall hand handler handlers hands \
    hard hardly hardware has hash have he head header headers heading health heart heat heavy height help helper \
    helpers hence her here herself high higher highest him himself his historic history hole holiday holidays home \
    hope horse hospital host hosts hotel hour hourly hours house how however human hundred hundreds husband i ice \
    idea ideas if image images immediate impact import important imports improvement in incident incidents income \
    increase indeed index industry info information initial initially input inputs inside instance instances instead \
    insurance integration interest interface interfaces internal internally internet interval interview interviews \
    into introduction inventory invoice invoices iron issue issues it item items iteration its itself jacket job \
    jobs journal journey joy judge juice jump junior just keep keeps kernel key keyboard keys kid kids kind kitchen \
    knee knowledge label labels lack lady lake lamp land language languages large larger last late latency later \
    latest latter laughter launch law lawyer lawyers layer layers layout lead leader leaders leads leaf leak leaks \
    least leave left legal lemon length less lesson lessons let letter letters level levels liability library \
    licence license life light like likely likewise limit limits line lines link links linter list listener lists \
    literature little live load loads loan local location locations lock locks log logger logic login logins logs \
    long longer look loop loss losses lost lot lots loud love low lower luck lunch machine machines magazine mail \
    mails main mainly maintainer maintainers major majority make makes male man manager managers manual manually \
    many map maps margin mark market marketing markets marriage master match matches material materials math \
    mathematics matter maximum may maybe me meal meals mean means meantime meanwhile measure measures meat media \
    medicine medium meeting meetings member members memory men mentor menu merge merges message messages metal \
    method methods metric metrics mid middle middleware midnight might migration migrations mile miles milk million \
    millions mind mine minimum minor minute minutes mirror mismatch miss mission mistake mistakes mixed mobile mock \
    mode model models modern module modules moment money monitor month monthly months mood more moreover morning \
    mornings most mostly mother motor mount mouse mouth move moves movie much multiple museum music musician \
    musicians must my myself name names narrow nation national native nature near nearby nearly necessary neck need \
    needs negative neighbour neighbours neither net network networks never nevertheless new newer newest news \
    newsletter next nice night nightly nights nine nineteen ninety no nobody node nodes noise none nonetheless noon \
    nor normal normally north nose not note notebook notes nothing notice notification notifications now nowadays \
    nowhere number numbers nurse object objects obviously occasion occasionally odd of off offer offers office \
    officer offices official officials often oil old older oldest on once one ones online only onto open opens \
    operation operations operator opinion opposite opposition option options or orange order orders ordinary \
    organisation organization origin original originally other others otherwise our out outage outages outcome \
    output outputs outside over overall overview owing own owner owners pack package packages page pages pain paint \
    pair pairs panel paper papers parent parents park parser part parties partly partner partners parts party pass \
    passage passenger passengers passes passport passports password passwords past patch patches path paths patient \
    patients pattern patterns pause pay payment payments peace peak pencil people per percent perfect performance \
    perhaps period permission permissions person personal personnel persons perspective phase phone phones photo \
    photographer photos phrase physical physics piano picture pictures piece pieces pilot pipeline pipelines pizza \
    place places plain plan plane plans plant plants plate platform platforms play player players please plenty plot \
    plugin plugins plus pocket poem poetry poets point pointer points police policies policy political poor popular \
    population port portal ports position positions possible possibly post postcard poster posts potential power \
    practice precise present presentation president press pressure presumably previous previously price prices \
    primary print printer prior priorities priority private probably problem problems procedure process processes \
    producer product production products professional professor profile profiles profit program programme programs \
    progress project projects promise prompt prompts proof proper properties property proposal proposals protection \
    protocol prototype provider providers proxy public pull pupil pupils purchase pure purpose push quality quantity \
    quarter quarterly queries query question questions queue queues quick quickly quiet quite quote race radio rail \
    rain random range rare rarely rate rates rather ratio raw react reader readers reading ready real really reason \
    reasons recall receipt recent recently recipe recipes recommendation record records recovery red reduction \
    refactor reference references refresh regarding region regions register registration registry regression \
    regressions regular regularly relation release releases relevance relevant remain remainder remaining reminder \
    remote removal render renewal rent repair repairs repeat replacement replica replicas reply report reporter \
    reports repositories repository request requests requirement requirements research researcher researchers \
    reserve reset resource resources respectively response responses responsibility rest restart restarts restaurant \
    result results retries retry return returns reuse revenue reverse review reviewer reviewers reviews revision \
    rewrite rice rich ride right rights ring risk risks river road roadmap roads robot role roles rollback rollout \
    roof room rooms root rough roughly round route router routes routine row rows rule rules run runner runners \
    running runs runtime safe safety salad salary sale sales salt same sample samples sand sauce save savings say \
    says scale scan scans scene schedule schedules schema school schools science scientist scientists scope score \
    scores screen screens screenshot screenshots script scripts sea search searches season seat seats second \
    secondary secondly seconds secret secrets section sections sector secure security see seldom selection self \
    semester senior sense sensor sensors sentence sentences separate separately sequence series serious server \
    servers service services session sessions set sets setting settings setup seven seventeen seventh seventy \
    several severe shape share shared shares she sheet shell shift ship shipment shirt shoe shoes shop shopping \
    shops short shortly should shoulder show shows shutdown sibling siblings side sides sign signal signals \
    signature silent silver similar similarly simple simply simulation simulations since singer single sister site \
    sites situation six sixteen sixth sixty size sizes ski skin skirt sky sleep slow slower small smaller smoke \
    smooth snack snapshot snapshots snow so social sofa soft software soil solution solutions some somebody someone \
    something sometimes somewhat somewhere son song songs soon sound soup source sources south space spaces speaker \
    speakers spec special specific specs speech speed spend sport sports spring square stable stack staff stage \
    staging stairs standard standards star start starts startup state statement states station stations statistics \
    status stay step steps still stock stone stop storage store stores stories storm story straight strategy stream \
    streams street stress strict string strings strong structure student students studies studio study stuff style \
    styles subject subjects subsequent subsequently success successful such sudden suddenly sugar suggestion \
    suggestions suite sum summaries summary summer sun sunshine super supper supplier suppliers supply support \
    supposedly sure surely surface surgery surprise surprisingly survey surveys swim switch symptom symptoms sync \
    syntax system systems table tables tag tags take takes talk talks target targets task tasks taste tax taxes taxi \
    tea teacher teachers team teams technical technique technology teeth telephone television temperature template \
    templates temporary ten tenant tenants tenth term terminal terms test tester tests text texts than thank thanks \
    that the theatre their them theme themes then theory there thereafter thereby therefore these thesis they thick \
    thin thing things third thirdly thirteen thirty this those though thought thousand thousands thread threads \
    threat three threshold thresholds through throughout throughput thus ticket tickets tidy tie time timeline \
    timeout timeouts timer times timestamp timestamps tiny tip tips title titles to today together token tokens \
    tomato tomatoes tomorrow tone tonight too tool toolchain tools tooth top topic topics total totals touch tour \
    tourist tourists toward towards towel town toy toys trace traces track tracker tracks trade traffic trail \
    trailer train trainer training trains transaction transactions transcript transfer transfers translation \
    translations transport travel traveller travellers tree trees trend trends trial trick trigger triggers trip \
    trips trouble truck true trust truth try tuple turn tutorial twelve twenty twice twin twins two type types \
    typical typically typo ultimately uncle under underneath uniform union unique unit units university unknown \
    unless unlike until up update updates upgrade upgrades upload uploads upon upper upstream urgent usage use used \
    useful user users uses usual usually utility vacation validation valley valuation value values van variable \
    variables variant variants variety various vegetable vegetables vehicle vendor vendors venue version versions \
    very via video videos view views village violation violations visit visitor visitors visits voice volume volumes \
    volunteer volunteers vote voter voters votes wage wait waiter wake walk wall walls want war warehouse warm \
    warning warnings wash waste watch water wave way ways we weak wealth weather web website websites wedding weed \
    week weekday weekend weekends weekly weeks weight welcome well were west what whatever wheel when whenever where \
    whereas wherever whether which while white who whole whose why wide widget width wife wild will win wind window \
    windows wine wing winner winners winter wire with within without woman women wood word words work worker workers \
    workflow workflows workplace works workshop workspace world worse worst would wrist write writer writers writes \
    wrong yard year yearly years yellow yes yesterday yet you young your youth zero zone zones zoo";
